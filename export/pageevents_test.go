package export_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/export"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestPageEventFigures: for every event mode and choice the page shows the numbers computed in Go.
func TestPageEventFigures(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := eventful(20, 1)
	b.media("prefers-color-scheme=light")
	b.load(page(t, r, export.FlameOptions{Idle: true}))
	one := func(t *profile.RecordedThread) bool { return t.OSThreadID == r.Threads[6].OSThreadID }
	for _, m := range profile.Modes {
		for _, tt := range []struct {
			name, choice string
			s            profile.Selection
		}{
			{"everything", "", profile.Selection{}},
			{"managed", "managed: true", profile.Selection{Managed: true}},
			{"one thread", "threads: new Set([6])", profile.Selection{Threads: one}},
			{"at work", "idle: false", profile.Selection{Working: true}},
			{"time", "from: 5e9, to: 18.5e9", profile.Selection{From: 5 * time.Second, To: 18500 * time.Millisecond}},
			{"without leaves", "leaves: false", profile.Selection{}},
			{"by wait", "waits: true", profile.Selection{}},
		} {
			t.Run(m.String()+", "+tt.name, func(t *testing.T) {
				b.eval(fmt.Sprintf("clrsnap.choose({mode: %d, threads: 'merged', managed: false, leaves: true, "+
					"idle: true, waits: false, from: 0, to: Infinity, %s})", m, tt.choice), nil)
				tt.s.Modes = []profile.Mode{m}
				s := r.Select(tt.s)
				if strings.Contains(tt.choice, "waits") {
					s = r.ByWait().Select(tt.s)
				}
				if strings.Contains(tt.choice, "leaves") {
					dropLeaves(s)
				}
				b.checkFigures(t, figuresOf(s), s)
				b.checkTree(t, s, false)
			})
		}
	}
	b.eval("clrsnap.choose({mode: 3, leaves: true})", nil)
	if names := b.text("#table td:last-child"); !strings.Contains(names, "NoSuchRuleException, c") {
		t.Errorf("who caught an exception is cut before its name is: %q", names)
	}
	b.check(t)
}

// dropLeaves removes the events from the stacks.
func dropLeaves(r *profile.Recording) {
	for i := range r.Samples {
		if f := r.Function(r.Samples[i].Node); f != nil && f.Kind == snapshot.Event {
			r.Samples[i].Node = r.Nodes[r.Samples[i].Node].Parent
		}
	}
}

// TestPageUnits: every number has the unit of its mode, wherever the number is shown.
func TestPageUnits(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	b.load(page(t, fewOfAll(), export.FlameOptions{}))
	for i, tt := range []struct {
		label   string
		texts   map[string]string // by selector: text in the element
		without string            // text that must be nowhere on the page
	}{
		{"CPU", map[string]string{
			"#summary": "500 ms of CPU time in 2 samples, 0.05 CPUs on average.",
			"#facts":   "2 CPU samples (4.00 Hz)", ".stripText": "up to 1.00 CPUs",
			"#detail": "total 500 ms (100.0 %)", "#tip": "500 ms (100.0 %) total · 500 ms (100.0 %) self · 2 samples",
			"#table h2": "Hottest functions", "#legend": "your code",
		}, "Thing"},
		{"Wall", map[string]string{
			"#summary": "7.00 thread-seconds, running and waiting, in 2 samples, 0.70 threads on average.",
			"#facts":   "2 wall-clock samples (0.50 Hz on average of 1.00 Hz)", ".stripText": "up to 2.00 threads",
			"#detail": "total 7.00 s (100.0 %)", "#tip": "7.00 s (100.0 %) total · 7.00 s (100.0 %) self · 2 samples",
			"#table h2": "Hottest functions", "#states": "Waiting", "#facts .poor": "50.0 % incomplete",
		}, "Thing"},
		{"Alloc", map[string]string{
			"#summary": "4.00 GiB allocated in ~14000 objects, estimated from 2 samples, 410 MiB/s on average.",
			"#facts":   "2 of 40 allocations (about one for each 2.00 GiB)", ".stripText": "up to 72.0 GiB/s",
			"#detail":   "total 4.00 GiB (100.0 %)\nself 0 B (0.0 %)\nobjects ~14000\non average 303 KiB\nsamples 2",
			"#tip":      "4.00 GiB (100.0 %) in ~14000 objects total · 0 B (0.0 %) self · 2 samples",
			"#table h2": "Classes and functions", "#table tbody": "75.0 %3.00 GiB",
			"#legend": "class that was allocated", "#toggles": "Classes", "#facts .poor": "50.0 % dropped",
			"#spoken": "Shop.Run, 4.00 GiB (100.0 %) in ~14000 objects", "#crumbs": "all: 4.00 GiB allocated",
		}, "4.29 s"},
		{"Exceptions", map[string]string{
			"#summary": "1300 exceptions, estimated from 2 samples, 130 exceptions/s on average.",
			"#facts":   "2 of 1300 exceptions (about one in 650)", ".stripText": "up to 24000 exceptions/s",
			"#detail": "total 1300 (100.0 %)\nself 0 (0.0 %)\nsamples 2",
			"#tip":    "1300 (100.0 %) total · 0 (0.0 %) self · 2 samples", "#table h2": "Types and functions",
			"#table tbody": "76.9 %1000", "#legend": "exception, and who caught it",
		}, "µs"},
		{"Locks", map[string]string{
			"#summary":   "1.50 s of waiting for locks in 5 waits, 0.15 threads waiting on average.",
			"#facts":     "2 of 12000 waits for locks (only those of 1.00 ms or longer)",
			".stripText": "up to 2.00 threads waiting",
			"#detail":    "total 1.50 s (100.0 %)\nself 0 s (0.0 %)\nwaits 5\non average 300 ms",
			"#tip":       "1.50 s (100.0 %) in 5 waits total · 0 s (0.0 %) self", "#table h2": "Owners and functions",
			"#legend": "who held the lock", "#facts .poor": "50.0 % without a complete stack",
		}, "samples"},
		{"Threads", map[string]string{
			"#summary": "2 threads started, 0.20 threads/s on average.", "#facts": "2 thread starts",
			".stripText": "up to 24.0 threads/s",
			"#detail":    "total 2 (100.0 %)", "#tip": "2 (100.0 %) total · 0 (0.0 %) self",
			"#table h2": "New threads and functions", "#legend": "thread that was started",
		}, "samples"},
		{"GC", map[string]string{
			"#summary": "300 ms of GC pauses in 3 collections, 3.0 % of the time on average.",
			"#facts":   "2 of 3 GC pauses", ".stripText": "up to 100.0 % of the time",
			"#detail":   "total 300 ms (100.0 %)\nself 0 s (0.0 %)\ncollections 3\non average 100 ms",
			"#tip":      "300 ms (100.0 %) in 3 collections total · 0 s (0.0 %) self",
			"#table h2": "Reasons and functions", "#legend": "generation and reason",
		}, "samples"},
	} {
		t.Run(tt.label, func(t *testing.T) {
			b.press(fmt.Sprint(i + 1))
			if text := b.text("#modes label:has(:checked)"); text != tt.label {
				t.Fatalf("key %d leads to %q", i+1, text)
			}
			run := b.frameNamed("Shop.Run").Index
			b.eval(fmt.Sprintf("clrsnap.select(%d)", run), nil)
			b.mouse("mouseMoved", 1, 1)
			x, y := b.middle(run)
			b.mouse("mouseMoved", x, y)
			for selector, want := range tt.texts {
				if text := b.text(selector); !strings.Contains(words(text), words(want)) {
					t.Errorf("%s: %q, want %q", selector, text, want)
				}
			}
			if text := b.text("#app, #tip"); strings.Contains(words(text), tt.without) {
				t.Errorf("%q is shown: %q", tt.without, text)
			}
			if shown := b.text("#states") != ""; shown != (tt.label == "Wall") {
				t.Errorf("that one can choose by state is %v", shown)
			}
			for color, want := range map[string]bool{"running": i < 2, "waiting": tt.label == "Wall", "event": i >= 2} {
				if b.stripHas(color) != want {
					t.Errorf("that the strip of time has the colour %q is %v", color, !want)
				}
			}
			b.eval(fmt.Sprintf("clrsnap.select(-1); clrsnap.sandwich(%d)", b.functionNamed("Shop.Run")), nil)
			if text := b.text("#detail"); !strings.Contains(words(text), words(tt.texts["#detail"])) {
				t.Errorf("callers and callees: %q, want %q", text, tt.texts["#detail"])
			}
			b.press("Escape")
		})
	}
	b.check(t)
}

// stripHas reports whether the time strip has the colour of a custom property of the
// page's style.
func (b *browser) stripHas(color string) (has bool) {
	b.tb.Helper()
	b.eval(fmt.Sprintf(`(() => {
		const strip = document.querySelector(".stripArea canvas"), copy = document.createElement("canvas");
		copy.width = strip.width; copy.height = strip.height + 1; // the last row is for the colour
		const ctx = copy.getContext("2d", { willReadFrequently: true });
		ctx.drawImage(strip, 0, 0);
		ctx.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--%s");
		ctx.fillRect(0, strip.height, 1, 1);
		const [r, g, b] = ctx.getImageData(0, strip.height, 1, 1).data;
		const seen = ctx.getImageData(0, 0, strip.width, strip.height).data;
		for (let i = 0; i < seen.length; i += 4) {
			if (seen[i] === r && seen[i + 1] === g && seen[i + 2] === b) return true;
		}
		return false;
	})()`, color), &has)
	return has
}

// words returns the words of a text, whatever its line breaks.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

func (b *browser) functionNamed(name string) int {
	b.tb.Helper()
	var all []figures
	b.eval("clrsnap.functions()", &all)
	for _, f := range all {
		if f.Name == name {
			return f.Func
		}
	}
	b.tb.Fatalf("there is no function %q", name)
	return -1
}

// TestPageLeaves: events can be left out, with mouse and key. Then they count for the function around
// them.
func TestPageLeaves(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	b.load(page(t, fewOfAll(), export.FlameOptions{}))
	if strings.Contains(b.text("#toggles"), "Classes") {
		t.Error("CPU time can be shown without classes")
	}
	b.eval("document.querySelector('#modes input[value=\"2\"]').click()", nil)
	if f := b.frameNamed("Shop.Run"); f.Self != 0 || f.Total != 4<<30 {
		t.Errorf("with classes: %+v", f)
	}
	b.eval("document.getElementById('toggle-leaves').click()", nil)
	if f := b.frameNamed("Shop.Run"); f.Self != 4<<30 || b.state().Frames != 2 {
		t.Errorf("without classes: %+v", f)
	}
	if heading, legend := b.text("#table h2"), b.text("#legend"); heading != "Functions" ||
		strings.Contains(legend, "class") {
		t.Errorf("without classes the table is of %q, colours are %q", heading, legend)
	}
	b.press("e")
	if f := b.frameNamed("Thing4"); f.Self != 3<<30 || !b.checked("toggle-leaves") {
		t.Errorf("with classes again: %+v", f)
	}
	b.check(t)
}

func (b *browser) checked(id string) (on bool) {
	b.tb.Helper()
	b.eval(fmt.Sprintf("document.getElementById(%q).checked", id), &on)
	return on
}

// TestPageEventsEmpty: a mode without samples says why.
func TestPageEventsEmpty(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := few(profile.Sample{At: 1e9, Mode: profile.Exception, Weight: 1, Events: 1})
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 99}, {Mode: profile.Alloc, Every: allocEvery},
		{Mode: profile.Exception, Samples: 1, Seen: 1},
		{Mode: profile.Contention, Every: int64(time.Millisecond), Seen: 1234},
		{Mode: profile.ThreadStart, Seen: 3, Lost: 3}, {Mode: profile.GC},
	}
	b.load(page(t, r, export.FlameOptions{}))
	if s := b.state(); s.Mode != "exception" {
		t.Errorf("the page begins with %s, of which there is nothing", s.Mode)
	}
	for label, want := range map[string]string{
		"CPU": "The recording has no CPU samples. The program used no CPU time while it was recorded.",
		"Alloc": "The recording has no allocations. " +
			"The program allocated nothing while it was recorded, or too little for a sample.",
		"Locks": "The recording has no waits for locks. " +
			"1234 waits for locks happened, but none was recorded (only those of 1.00 ms or longer).",
		"Threads": "The recording has no thread starts. 3 thread starts happened, but none was recorded: " +
			"there was no room.",
		"GC": "The recording has no GC pauses. There was no garbage collection while the program was recorded.",
	} {
		b.eval(fmt.Sprintf("[...document.querySelectorAll('#modes label.empty')].find((e) => "+
			"e.innerText === %q).querySelector('input').click()", label), nil)
		if text := b.text("#empty"); text != want {
			t.Errorf("%s: %q, want %q", label, text, want)
		}
		for _, key := range []string{"e", "ArrowDown", "Enter", "Escape", "s"} {
			b.press(key)
		}
	}
	b.picture("events-empty")
	b.press("3")
	b.eval("clrsnap.time(5e9, 6e9)", nil)
	want := "The selection has no exceptions. Choose other threads, or all of the time."
	if text := b.text("#empty"); text != want {
		t.Errorf("%q, want %q", text, want)
	}
	b.check(t)
}

// TestPageEventsDiff: events are compared in their units.
func TestPageEventsDiff(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	slow, good := eventful(20, 3), eventful(30, 1)
	b.load(page(t, slow, export.FlameOptions{Base: good}))
	b.press("3")
	alloc := profile.Selection{Modes: []profile.Mode{profile.Alloc}}
	after, before := figuresOf(slow.Select(alloc)), figuresOf(good.Select(alloc))
	for _, key := range []string{"System.String|System.Private.CoreLib",
		"Shop.Domain.Pricing.RuleTree.Apply(Node, decimal)|Shop.Domain"} {
		var got []figures
		b.eval("clrsnap.functions()", &got)
		i := slices.IndexFunc(got, func(f figures) bool { return f.key() == key })
		if i < 0 || got[i].Total != after[key].Total || got[i].Total == 0 || got[i].BaseTotal != before[key].Total ||
			got[i].Events != after[key].Events {
			t.Errorf("%s: %+v, want %+v after %+v", key, got, after[key], before[key])
		}
	}
	mib := func(r *profile.Recording) float64 { return float64(r.Weight(profile.Alloc)) / (1 << 20) }
	text, want := b.text("#summary"), fmt.Sprintf("Before: %.2f GiB allocated, %.1f MiB/s on average. Widths: after.",
		mib(good)/1024, mib(good)/30)
	if !strings.HasPrefix(text, fmt.Sprintf("%.0f MiB allocated in ", mib(slow))) || !strings.Contains(text, want) {
		t.Errorf("summary: %q, want %q", text, want)
	}
	b.eval("document.querySelector('#table input[value=total]').click(); "+
		"document.getElementById('sort-change').click()", nil)
	b.picture("events-diff")
	b.load(page(t, few(profile.Sample{Mode: profile.GC, Weight: second, Events: 1}),
		export.FlameOptions{Base: synthetic(1, 1)}))
	if text, want := b.text("#summary"), "Before: no GC pauses were recorded."; !strings.Contains(text, want) {
		t.Errorf("summary: %q, want %q", text, want)
	}
	b.check(t)
}

// TestPageEventPictures: every mode fits a window and a phone.
func TestPageEventPictures(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	recording := page(t, eventful(20, 1), export.FlameOptions{})
	for _, theme := range []string{"light", "dark"} {
		b.window(1280, 800, false)
		b.media("prefers-color-scheme=" + theme)
		b.load(recording)
		for i, m := range profile.Modes {
			b.press(fmt.Sprint(i + 1))
			b.picture("events-" + theme + "-" + m.String())
		}
	}
	b.window(390, 844, true)
	b.media("prefers-color-scheme=light")
	b.load(recording)
	for i, m := range profile.Modes {
		b.press(fmt.Sprint(i + 1))
		b.checkFits(t)
		b.picture("events-phone-" + m.String())
	}
	b.window(1280, 800, false)
	b.press("3")
	leaf := b.frameNamed("Byte[]").Index
	b.eval(fmt.Sprintf("clrsnap.select(%d)", leaf), nil)
	b.mouse("mouseMoved", 1, 1)
	x, y := b.middle(leaf)
	b.mouse("mouseMoved", x, y)
	b.picture("events-tip")
	b.press("s")
	b.picture("events-callers")
	b.press("Escape")
	b.press("e")
	b.picture("events-without-leaves")
	b.press("e")
	b.window(760, 900, false)
	b.picture("events-narrow")
	b.eval("document.getElementById('helpButton').click()", nil)
	b.picture("events-help")
	b.check(t)
}
