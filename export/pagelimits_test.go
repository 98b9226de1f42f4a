package export_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"clrsnap/export"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestPageReadBack: a page is a recording too, with and without another to compare.
func TestPageReadBack(t *testing.T) {
	r := synthetic(2, 1)
	for _, o := range []export.FlameOptions{{Title: `<script type="application/octet-stream" id="recording">`},
		{Base: synthetic(1, 2)}} {
		got, err := export.ReadRecording(bytes.NewReader(page(t, r, o)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Error("the page holds another recording than was written")
		}
	}
}

// TestPageHostile: names are shown as text, whatever they contain.
func TestPageHostile(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	builder := profile.NewBuilder(profile.Limits{})
	names := []string{
		"<script>window.hacked = 1</script>", `"><img src=x onerror="window.hacked = 1">`,
		"</script><script>window.hacked = 1</script>",
		"{{title}}", "a\u202egnp.exe", "nul\x00 and \x1b[31m", strings.Repeat("Long<", 3000) +
			strings.Repeat(">", 3000), "日本語の名前",
	}
	var stack []int32
	for _, n := range names {
		stack = append(stack, builder.Location(profile.Location{
			Function: builder.Function(profile.Function{Kind: snapshot.Managed, Method: n, Display: n, Short: n,
				Signature: "(" + n + ")", Module: n}), Tier: n,
		}))
	}
	builder.Thread(profile.RecordedThread{OSThreadID: 1, Name: names[0], Role: names[1]})
	builder.Add(profile.Sample{Weight: 1e9, Node: builder.Stack(stack)})
	r := builder.Recording()
	r.Processes = []snapshot.Process{{PID: 1, Command: names[2], Runtime: snapshot.Runtime{Version: names[0]}}}
	r.Notes, r.Version, r.Duration = names, names[2], time.Second
	b.load(page(t, r, export.FlameOptions{Title: names[2]}))
	for i := range len(names) + 1 {
		b.eval(fmt.Sprintf("clrsnap.select(%d); clrsnap.zoom(%d)", i, i), nil)
	}
	b.eval("clrsnap.choose({threads: 'each'}); clrsnap.sandwich(0)", nil)
	b.stop()
	b.picture("hostile")
	var hacked bool
	b.eval("'hacked' in window || document.images.length > 0 || document.scripts.length !== 3", &hacked)
	if hacked {
		t.Error("a name was taken for markup")
	}
	if text := b.text("#notes"); !strings.Contains(text, names[0]) || strings.ContainsAny(text, "\u202e\x1b") {
		t.Errorf("notes: %.300q", text)
	}
	b.check(t)
}

// TestPagePolicy: the browser does not let the page load anything.
func TestPagePolicy(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.load(page(t, synthetic(1, 1), export.FlameOptions{}))
	b.check(t)
	var refused []string
	b.eval(`new Promise((done) => {
		const refused = [];
		document.addEventListener("securitypolicyviolation", (e) => {
			refused.push(e.effectiveDirective);
			if (refused.length === 3) done(refused.sort());
		});
		new Image().src = "http://127.0.0.1:9/x.png";
		fetch("http://127.0.0.1:9/x").catch(() => {});
		const s = document.createElement("script"); s.textContent = "window.ran = 1"; document.body.append(s);
		setTimeout(() => done(refused), 20000);
	})`, &refused)
	if got := strings.Join(refused, " "); got != "connect-src img-src script-src-elem" {
		t.Errorf("refused: %q", got)
	}
}

// TestPageEmpty: a page without samples says why.
func TestPageEmpty(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := profile.NewBuilder(profile.Limits{}).Recording()
	r.Modes, r.Duration = []profile.ModeStats{{Mode: profile.CPU, Rate: 99},
		{Mode: profile.Wall, Rate: 99}}, time.Second
	b.load(page(t, r, export.FlameOptions{}))
	if text := b.text("#empty"); !strings.Contains(text, "no CPU samples. The program used no CPU time") {
		t.Errorf("%q", text)
	}
	b.picture("empty")
	for _, key := range []string{"ArrowDown", "Enter", "Escape", "n", "i", "s", "0", "+"} {
		b.press(key)
	}
	b.check(t)
	busy := synthetic(2, 1)
	b.load(page(t, busy.Select(profile.Selection{Threads: func(*profile.RecordedThread) bool { return false }}),
		export.FlameOptions{Base: busy}))
	b.eval("document.getElementById('toggle-base').click()", nil)
	b.check(t)
}

// TestPageOldBrowser: in a browser that cannot decompress the recording the page says so.
func TestPageOldBrowser(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": "delete window.DecompressionStream"}, nil)
	b.load(page(t, synthetic(1, 1), export.FlameOptions{}))
	if text := b.text("#message"); !strings.Contains(text, "DecompressionStream") {
		t.Errorf("%q", text)
	}
	b.check(t)
}

// TestPageLarge: fifty thousand frames. How long they take is logged, not judged.
func TestPageLarge(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := wide(50_000)
	b.load(page(t, r, export.FlameOptions{}))
	s := b.state()
	if s.Frames < 45_000 {
		t.Errorf("%d frames of %d nodes", s.Frames, len(r.Nodes))
	}
	b.checkFigures(t, figuresOf(r.Select(profile.Selection{})), r)
	var draw, zoomed, search float64
	b.eval("Math.max(...Array.from({length: 20}, () => clrsnap.draw()))", &draw)
	b.picture("large")
	b.eval("clrsnap.zoom(5); new Promise((done) => setTimeout(() => done(Math.max(...Array.from({length: 20}, () => "+
		"clrsnap.draw()))), 300))", &zoomed)
	b.eval("(() => { const e = document.getElementById('search'), t = performance.now(); e.value = 'Type12'; "+
		"e.dispatchEvent(new Event('input')); clrsnap.draw(); return performance.now() - t; })()", &search)
	t.Logf("%d frames: layout %.0f ms, drawing at most %.1f ms, zoomed %.1f ms, search %.0f ms",
		s.Frames, s.LayoutTime, draw, zoomed, search)
	b.check(t)
}
