package export_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap/export"
	"clrsnap/profile"
)

func page(tb testing.TB, r *profile.Recording, o export.FlameOptions) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := export.FlameGraph(&b, r, o); err != nil {
		tb.Fatal(err)
	}
	if dir := os.Getenv("CLRSNAP_PICTURES"); dir != "" {
		name := strings.ReplaceAll(tb.Name(), "/", "-") + ".html"
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

// figures are what a page shows of a function, in nanoseconds.
type figures struct {
	Name, Signature, Module string
	Self, Total             float64
	BaseSelf, BaseTotal     float64
	Count                   int
	Func                    int
}

func (f *figures) key() string { return f.Name + f.Signature + "|" + f.Module }

// figuresOf works out in Go what the page works out in JavaScript.
func figuresOf(r *profile.Recording) map[string]*figures {
	out, of := map[string]*figures{}, make([]*figures, len(r.Functions))
	for i, f := range r.Functions {
		k := &figures{Name: f.Display, Signature: f.Signature, Module: f.Module}
		of[i] = k
		out[k.key()] = k
	}
	for _, s := range r.Samples {
		seen := map[*figures]bool{}
		for l := range r.Stack(s.Node) {
			k := of[l.Function]
			if len(seen) == 0 {
				k.Self += float64(s.Weight)
			}
			if !seen[k] {
				k.Total += float64(s.Weight)
				k.Count += int(s.Count)
			}
			seen[k] = true
		}
	}
	maps.DeleteFunc(out, func(_ string, f *figures) bool { return f.Count == 0 })
	return out
}

type state struct {
	Ready              bool
	Mode, Theme        string
	Weight, BaseWeight float64
	Frames             int
	Selected, Focus    *frame
	View               [2]float64
	Flip               bool
	Around             *int
	Found              *struct {
		Functions, Frames int
		Weight            float64
	}
	LayoutTime, DrawTime float64
}

type frame struct {
	Index, Count, Depth int
	Name                string
	Total, Self, Before float64
	Up                  bool
}

func (b *browser) state() (s state) {
	b.tb.Helper()
	b.eval("clrsnap.state()", &s)
	return s
}

func (b *browser) text(selector string) (text string) {
	b.tb.Helper()
	b.eval(fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.innerText).join('\\n')", selector), &text)
	return strings.NewReplacer("\u202f", "", "\u00a0", " ").Replace(text)
}

// frameNamed returns the heaviest frame of a name.
func (b *browser) frameNamed(name string) frame {
	b.tb.Helper()
	var all []frame
	b.eval("clrsnap.frames()", &all)
	best := frame{Index: -1}
	for _, f := range all {
		if f.Name == name && (best.Index < 0 || f.Total > best.Total) {
			best = f
		}
	}
	if best.Index < 0 {
		b.tb.Fatalf("there is no frame %q", name)
	}
	return best
}

// middle is where a frame can be clicked on.
func (b *browser) middle(i int) (x, y float64) {
	b.tb.Helper()
	p := b.placeOf(i)
	return p.X + p.Width/2, p.Y + p.Height/2
}

type place struct{ X, Y, Width, Height float64 }

func (b *browser) placeOf(i int) (p place) {
	b.tb.Helper()
	b.eval(fmt.Sprintf("clrsnap.place(%d)", i), &p)
	return p
}

// stop ends the motions of a zoom before anything is looked at.
func (b *browser) stop() {
	b.tb.Helper()
	b.eval("new Promise((done) => setTimeout(() => done(true), 300))", nil)
}

// TestPageFigures: for every choice the page shows what Go works out.
func TestPageFigures(t *testing.T) {
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.media("prefers-color-scheme=light")
	b.load(page(t, r, export.FlameOptions{}))
	b.picture("light")
	b.media("prefers-color-scheme=dark")
	b.until(`clrsnap.state().theme === "dark"`)
	b.picture("dark")
	b.media("prefers-color-scheme=light")
	cpu, wall := []profile.Mode{profile.CPU}, []profile.Mode{profile.Wall}
	only := func(id int) func(*profile.RecordedThread) bool {
		return func(t *profile.RecordedThread) bool { return t.OSThreadID == id }
	}
	everything := "mode: 0, states: 3, threads: 'merged', managed: false, native: false, from: 0, to: Infinity"
	for _, tt := range []struct {
		name, choice string
		s            profile.Selection
	}{
		{"cpu", "", profile.Selection{Modes: cpu}},
		{"wall", "mode: 1", profile.Selection{Modes: wall}},
		{"wall, waiting", "mode: 1, states: 2", profile.Selection{Modes: wall, States: []profile.State{profile.Waiting}}},
		{"wall, running", "mode: 1, states: 1", profile.Selection{Modes: wall, States: []profile.State{profile.Running}}},
		{"managed", "managed: true", profile.Selection{Modes: cpu, Managed: true}},
		{"native", "native: true", profile.Selection{Modes: cpu, Native: true}},
		{"managed and native", "mode: 1, managed: true, native: true", profile.Selection{Modes: wall, Managed: true, Native: true}},
		{"one thread", "threads: new Set([6])", profile.Selection{Modes: cpu, Threads: only(r.Threads[6].OSThreadID)}},
		{"each thread", "threads: 'each'", profile.Selection{Modes: cpu}},
		{"time", "from: 5e9, to: 8.5e9", profile.Selection{Modes: cpu, From: 5 * time.Second, To: 8500 * time.Millisecond}},
		{"all at once", "mode: 1, states: 2, threads: new Set([0]), managed: true, from: 19e9", profile.Selection{
			Modes: wall, States: []profile.State{profile.Waiting}, Threads: only(r.Threads[0].OSThreadID), Managed: true, From: 19 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.eval("clrsnap.choose({"+everything+", "+tt.choice+"})", nil)
			b.checkFigures(t, figuresOf(r.Select(tt.s)), r.Select(tt.s))
		})
	}
	b.check(t)
}

func (b *browser) checkFigures(t *testing.T, want map[string]*figures, r *profile.Recording) {
	t.Helper()
	var got []figures
	b.eval("clrsnap.functions()", &got)
	var all float64
	for _, s := range r.Samples {
		all += float64(s.Weight)
	}
	if w := b.state().Weight; w != all || all == 0 {
		t.Errorf("all of it is %v ns, want %v", w, all)
	}
	var hottest figures
	for _, g := range got {
		w := want[g.key()]
		if w == nil {
			t.Errorf("%s is shown, but was not chosen", g.key())
			continue
		}
		delete(want, g.key())
		if g.Self != w.Self || g.Total != w.Total || g.Count != w.Count {
			t.Errorf("%s: self %v, total %v, %d samples; want %v, %v, %d", g.key(), g.Self, g.Total, g.Count, w.Self, w.Total, w.Count)
		}
		if g.Self > hottest.Self {
			hottest = g
		}
	}
	for k, w := range want {
		t.Errorf("%s is missing: %v", k, *w)
	}
	// What is to be read is the same.
	row := b.text("#table tbody tr:first-child td:first-child")
	if share := fmt.Sprintf("%.1f %%", 100*hottest.Self/all); !strings.HasPrefix(row, share) {
		t.Errorf("the first row says %q, want %s (%s)", row, share, hottest.Name)
	}
}

// TestPageSearch: what matches counts once for each stack.
func TestPageSearch(t *testing.T) {
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.load(page(t, r, export.FlameOptions{}))
	for _, tt := range []struct {
		typed   string
		matches func(*profile.Function) bool
	}{
		{"RULETREE", func(f *profile.Function) bool { return strings.Contains(f.Display, "RuleTree") }},
		{`/rule\w+\.apply|^SVR::/`, func(f *profile.Function) bool {
			return strings.Contains(f.Display, "RuleTree.Apply") || strings.HasPrefix(f.Display, "SVR::")
		}},
		{"System.Text.Json", func(f *profile.Function) bool {
			return strings.Contains(f.Display+f.Signature, "System.Text.Json") || f.Module == "System.Text.Json"
		}},
	} {
		b.eval("document.getElementById('search').value = ''", nil)
		b.press("/")
		b.call("Input.insertText", map[string]any{"text": tt.typed}, nil)
		s := r.Select(profile.Selection{Modes: []profile.Mode{profile.CPU}})
		var want, all float64
		for _, x := range s.Samples {
			all += float64(x.Weight)
			for l := range s.Stack(x.Node) {
				if tt.matches(&s.Functions[l.Function]) {
					want += float64(x.Weight)
					break
				}
			}
		}
		found := b.state().Found
		if found == nil || found.Weight != want || want == 0 {
			t.Errorf("%s: %+v, want %v ns", tt.typed, found, want)
		}
		if shown, share := b.text("#found"), fmt.Sprintf("(%.1f %%)", 100*want/all); !strings.Contains(shown, share) {
			t.Errorf("%s: %q is shown, want %s", tt.typed, shown, share)
		}
		b.press("Enter")
		if sel := b.state().Selected; sel == nil {
			t.Errorf("%s: Enter goes to no match", tt.typed)
		}
		b.eval("document.getElementById('search').blur()", nil)
	}
	b.picture("search")
	b.eval("document.getElementById('search').value = '/(/'; document.getElementById('search').dispatchEvent(new Event('input'))", nil)
	if text := b.text("#found"); !strings.Contains(text, "no regular expression") {
		t.Errorf("a wrong expression: %q", text)
	}
	b.check(t)
}

// TestPageKeys goes through the page with mouse and keys, as a person does.
func TestPageKeys(t *testing.T) {
	b := startBrowser(t)
	b.window(1280, 800, false)
	b.load(page(t, synthetic(20, 1), export.FlameOptions{}))
	all := b.state()
	price := b.frameNamed("PriceEngine.Quote")
	b.click(b.middle(price.Index))
	b.stop()
	s := b.state()
	if s.Focus.Index != price.Index || math.Abs(s.View[1]-s.View[0]-price.Total) > 1 || s.Selected.Index != price.Index {
		t.Errorf("a click zooms to %+v, view %v; want %+v", s.Focus, s.View, price)
	}
	if crumbs := b.text("#crumbs"); !strings.Contains(crumbs, "Tracing.Invoke{async}") || !strings.Contains(crumbs, "PriceEngine.Quote") {
		t.Errorf("ancestors: %q", crumbs)
	}
	if detail := b.text("#detail"); !strings.Contains(detail, "Shop.Domain.Pricing.PriceEngine.Quote(Basket, ref Discounts)") ||
		!strings.Contains(detail, fmt.Sprintf("(%.1f %%)", 100*price.Total/all.Weight)) || !strings.Contains(detail, "tier-1") {
		t.Errorf("detail: %q", detail)
	}
	b.picture("zoomed")
	b.press("ArrowDown")
	if s := b.state(); s.Selected.Name != "RuleTree.Apply" || s.Selected.Depth != price.Depth+1 {
		t.Errorf("down goes to %+v", s.Selected)
	}
	b.press("ArrowUp")
	b.press("ArrowUp")
	if s := b.state(); s.Selected.Name != "OrdersController.Post{async}" {
		t.Errorf("up goes to %+v", s.Selected)
	}
	b.press("ArrowRight")
	if s := b.state(); s.Selected.Name != "SearchController.Get{async}" {
		t.Errorf("right goes to %+v", s.Selected)
	}
	b.press("Enter")
	b.stop()
	if s := b.state(); s.Focus.Name != "SearchController.Get{async}" {
		t.Errorf("Enter zooms to %+v", s.Focus)
	}
	b.press("Escape")
	b.stop()
	if s := b.state(); s.View != all.View || s.Focus.Index != 0 {
		t.Errorf("Escape leaves the view %v, want %v", s.View, all.View)
	}
	x, y := b.middle(price.Index)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -50, "modifiers": 2}, nil)
	b.stop()
	if s, now := b.state(), b.placeOf(price.Index); s.View[1]-s.View[0] > 0.9*all.Weight || now.X > x || now.X+now.Width < x {
		t.Errorf("Ctrl-wheel shows %v, the frame that the pointer was on is at %+v", s.View, now)
	}
	b.press("0")
	b.stop()
	if s := b.state(); s.View != all.View {
		t.Errorf("0 leaves the view %v, want %v", s.View, all.View)
	}
	if crumbs := b.text("#crumbs"); strings.Contains(crumbs, "Reset") {
		t.Errorf("there is no zoom, but one can reset it: %q", crumbs)
	}
	b.press("i")
	if s := b.state(); !s.Flip {
		t.Error("i does not put the root at the bottom")
	}
	_, root := b.middle(0)
	if _, child := b.middle(1); child >= root {
		t.Error("with the root at the bottom, callees are not above it")
	}
	b.picture("flame")
	b.press("i")
	b.press("t")
	b.picture("no-table")
	b.press("t")
	b.press("?")
	if !strings.Contains(b.text("#help"), "callers and callees") {
		t.Error("? shows no help")
	}
	b.picture("help")
	b.press("Escape")
	b.eval("document.getElementById('help').close()", nil)
	b.check(t)
}

// TestPageSandwich: callers and callees of a function add up to its total.
func TestPageSandwich(t *testing.T) {
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.load(page(t, r, export.FlameOptions{}))
	want := figuresOf(r.Select(profile.Selection{Modes: []profile.Mode{profile.CPU}}))["Shop.Domain.Pricing.RuleTree.Apply(Node, decimal)|Shop.Domain"]
	b.click(b.middle(b.frameNamed("RuleTree.Apply").Index))
	b.press("s")
	b.stop()
	var all []frame
	b.eval("clrsnap.frames()", &all)
	if all[0].Name != "RuleTree.Apply" || all[0].Total != want.Total || all[0].Total == 0 {
		t.Fatalf("the middle is %+v, want %v", all[0], want.Total)
	}
	var callers, callees, self float64
	for _, f := range all[1:] {
		if f.Depth == 1 && f.Up {
			callers += f.Total
		}
		if f.Depth == 1 && !f.Up {
			callees += f.Total
		}
		if f.Name == "RuleTree.Apply" && !f.Up {
			self += f.Self
		}
	}
	// Incomplete stacks may begin with the function.
	if callers > want.Total || callers < 0.95*want.Total || callees+all[0].Self != want.Total || self+all[0].Self != want.Self {
		t.Errorf("callers %v, callees %v, self %v; want %v, %v", callers, callees, self+all[0].Self, want.Total, want.Self)
	}
	_, middle := b.middle(0)
	for _, f := range all[1:] {
		if _, y := b.middle(f.Index); f.Up != (y < middle) {
			t.Fatalf("%s is on the wrong side", f.Name)
		}
	}
	b.picture("sandwich")
	b.press("Escape")
	if b.state().Around != nil {
		t.Error("Escape does not lead back")
	}
	b.check(t)
}

// TestPageTime: a range is dragged on the strip of time, and moved with keys.
func TestPageTime(t *testing.T) {
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.load(page(t, r, export.FlameOptions{}))
	var box struct{ Left, Top, Width, Height float64 }
	b.eval("document.querySelector('.stripArea').getBoundingClientRect().toJSON()", &box)
	y := box.Top + box.Height/2
	b.mouse("mouseMoved", box.Left+box.Width/4, y)
	b.mouse("mousePressed", box.Left+box.Width/4, y)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": box.Left + box.Width/3, "y": y, "button": "left", "buttons": 1}, nil)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": box.Left + box.Width/2, "y": y, "button": "left", "buttons": 1}, nil)
	b.mouse("mouseReleased", box.Left+box.Width/2, y)
	var chosen struct{ From, To float64 }
	b.eval("clrsnap.state()", &chosen)
	if math.Abs(chosen.From-5e9) > 5e7 || math.Abs(chosen.To-10e9) > 5e7 {
		t.Fatalf("a quarter to a half of 20 s is %+v", chosen)
	}
	s := r.Select(profile.Selection{Modes: []profile.Mode{profile.CPU}, From: time.Duration(math.Ceil(chosen.From)), To: time.Duration(math.Ceil(chosen.To))})
	b.checkFigures(t, figuresOf(s), s)
	b.picture("time")
	b.eval("document.querySelectorAll('.handle')[1].focus()", nil)
	b.press("ArrowRight")
	var moved struct{ To float64 }
	b.eval("clrsnap.state()", &moved)
	if math.Abs(moved.To-chosen.To-2e8) > 1e6 {
		t.Errorf("the right arrow moves the end from %v to %v ns, want 1 %% of 20 s more", chosen.To, moved.To)
	}
	b.check(t)
}

// TestPageWall: waiting is told from running, threads stand side by side.
func TestPageWall(t *testing.T) {
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.load(page(t, r, export.FlameOptions{}))
	b.eval("document.querySelector('#modes input[value=\"1\"]').click()", nil)
	if text := b.text("#summary"); !strings.Contains(text, "240 thread-seconds") {
		t.Errorf("summary: %q", text)
	}
	b.picture("wall")
	b.eval("document.querySelector('#states input[value=\"2\"]').click()", nil)
	if s := b.state(); s.Weight >= float64(r.Weight(profile.Wall)) || s.Weight == 0 {
		t.Errorf("waiting alone is %v", s.Weight)
	}
	b.eval("const e = document.getElementById('threads'); e.value = 'each'; e.dispatchEvent(new Event('change'))", nil)
	var all []frame
	b.eval("clrsnap.frames()", &all)
	threads := 0
	for _, f := range all {
		if f.Depth == 1 {
			threads++
		}
	}
	if threads != len(r.Threads) {
		t.Errorf("%d threads are shown, want %d", threads, len(r.Threads))
	}
	b.picture("threads")
	b.media("prefers-color-scheme=dark")
	b.picture("threads-dark")
	b.check(t)
}

// TestPageDiff: two recordings, compared by their shares.
func TestPageDiff(t *testing.T) {
	b := startBrowser(t)
	b.window(1280, 800, false)
	slow, good := synthetic(20, 3), synthetic(30, 1)
	b.load(page(t, slow, export.FlameOptions{Base: good}))
	cpu := profile.Selection{Modes: []profile.Mode{profile.CPU}}
	after, before := figuresOf(slow.Select(cpu)), figuresOf(good.Select(cpu))
	var got []figures
	b.eval("clrsnap.functions()", &got)
	seen := 0
	for _, g := range got {
		var wantAfter, wantBefore figures
		if f := after[g.key()]; f != nil {
			wantAfter = *f
			seen++
		}
		if f := before[g.key()]; f != nil {
			wantBefore = *f
			seen++
		}
		if g.Self != wantAfter.Self || g.Total != wantAfter.Total || g.BaseSelf != wantBefore.Self || g.BaseTotal != wantBefore.Total {
			t.Errorf("%s: %+v, want %+v after %+v", g.key(), g, wantAfter, wantBefore)
		}
	}
	if seen != len(after)+len(before) {
		t.Errorf("%d figures, want %d", seen, len(after)+len(before))
	}
	b.eval("document.querySelector('#table input[value=total]').click(); document.getElementById('sort-change').click()", nil)
	b.picture("diff")
	b.eval("document.getElementById('toggle-base').click()", nil)
	if v := b.state().View; v[1] != float64(good.Weight(profile.CPU)) {
		t.Errorf("the view of what was before is %v, want %v", v, good.Weight(profile.CPU))
	}
	b.media("prefers-color-scheme=dark")
	b.picture("diff-dark")
	b.check(t)
}

// TestPagePhone: everything fits a phone, and can be hit with a finger.
func TestPagePhone(t *testing.T) {
	b := startBrowser(t)
	b.window(390, 844, true)
	b.load(page(t, synthetic(20, 1), export.FlameOptions{}))
	var size struct{ Wide, Small []string }
	b.eval(`({
		wide: [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && !e.closest(".rows") && e.getBoundingClientRect().right > 391 && !e.matches(".handle, option, optgroup")).map((e) => e.tagName + "#" + e.id + "." + e.className),
		small: [...document.querySelectorAll("button, select, input[type=search], .segments label, #toggles label")].filter((e) => e.checkVisibility() && (e.getBoundingClientRect().height < 39.5 || e.getBoundingClientRect().width < 39.5)).map((e) => e.outerHTML.slice(0, 100)),
	})`, &size)
	if len(size.Wide) > 0 {
		t.Errorf("wider than the screen: %v", size.Wide)
	}
	if len(size.Small) > 0 {
		t.Errorf("too small for a finger: %v", size.Small)
	}
	b.picture("phone")
	var wider bool
	if b.eval("document.documentElement.scrollWidth > 390 || innerWidth > 390", &wider); wider {
		t.Error("the page scrolls sideways")
	}
	price := b.frameNamed("PriceEngine.Quote")
	b.eval("document.getElementById('graph').scrollIntoView()", nil)
	tap := func() {
		x, y := b.middle(price.Index)
		b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchStart", "touchPoints": []map[string]any{{"x": x, "y": y}}}, nil)
		b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchEnd", "touchPoints": []any{}}, nil)
		b.stop()
	}
	tap()
	if s := b.state(); s.Selected == nil || s.Selected.Index != price.Index || s.Focus.Index != 0 {
		t.Errorf("the first tap: selected %+v, zoomed to %+v", s.Selected, s.Focus)
	}
	tap()
	if s := b.state(); s.Focus.Index != price.Index {
		t.Errorf("the second tap zooms to %+v", s.Focus)
	}
	b.picture("phone-graph")
	b.eval("clrsnap.zoom(0)", nil)
	b.stop()
	before := b.state()
	x, y := b.middle(price.Index)
	touch := func(kind string, apart float64) {
		b.call("Input.dispatchTouchEvent", map[string]any{"type": kind, "touchPoints": []map[string]any{{"x": x - apart, "y": y, "id": 1}, {"x": x + apart, "y": y, "id": 2}}}, nil)
	}
	touch("touchStart", 20)
	touch("touchMove", 30)
	touch("touchMove", 40)
	b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchEnd", "touchPoints": []any{}}, nil)
	b.stop()
	if now := b.state(); math.Abs((before.View[1]-before.View[0])/(now.View[1]-now.View[0])-2) > 0.1 || now.Focus.Index != 0 {
		t.Errorf("fingers that go twice as far apart change the view from %v to %v", before.View, now.View)
	}
	b.eval("document.getElementById('table').scrollIntoView()", nil)
	b.picture("phone-table")
	b.check(t)
}

// TestPageHostile: names are text, whatever they look like.
func TestPageHostile(t *testing.T) {
	b := startBrowser(t)
	b.window(1280, 800, false)
	builder := profile.NewBuilder(profile.Limits{})
	names := []string{
		"<script>window.hacked = 1</script>", `"><img src=x onerror="window.hacked = 1">`, "</script><script>window.hacked = 1</script>",
		"{{title}}", "a\u202egnp.exe", "nul\x00 and \x1b[31m", strings.Repeat("Long<", 3000) + strings.Repeat(">", 3000), "日本語の名前",
	}
	var stack []int32
	for _, n := range names {
		stack = append(stack, builder.Location(profile.Location{Function: builder.Function(profile.Function{Kind: profile.Managed, Method: n, Display: n, Short: n, Signature: "(" + n + ")", Module: n}), Tier: n}))
	}
	builder.Thread(profile.RecordedThread{OSThreadID: 1, Name: names[0], Role: names[1]})
	builder.Add(profile.Sample{Weight: time.Second, Node: builder.Stack(stack)})
	r := builder.Recording()
	r.Processes = []profile.Process{{PID: 1, Command: names[2], Runtime: profile.Runtime{Version: names[0]}}}
	r.Notes, r.Version, r.Duration = names, names[2], time.Second
	b.load(page(t, r, export.FlameOptions{Title: names[2]}))
	for i := range len(names) + 1 {
		b.eval(fmt.Sprintf("clrsnap.select(%d); clrsnap.zoom(%d)", i, i), nil)
	}
	b.eval("clrsnap.choose({threads: 'each'}); clrsnap.sandwich(0)", nil)
	b.stop()
	b.picture("hostile")
	var hacked bool
	b.eval("'hacked' in window || document.images.length > 0 || document.scripts.length !== 2", &hacked)
	if hacked {
		t.Error("a name was taken for markup")
	}
	if text := b.text("#notes"); !strings.Contains(text, names[0]) || strings.ContainsAny(text, "\u202e\x1b") {
		t.Errorf("notes: %.300q", text)
	}
	b.check(t)
}

// TestPagePolicy: the page may load nothing, even if it wanted to.
func TestPagePolicy(t *testing.T) {
	b := startBrowser(t)
	b.load(page(t, synthetic(1, 1), export.FlameOptions{}))
	b.check(t)
	var refused []string
	b.eval(`new Promise((done) => {
		const refused = [];
		document.addEventListener("securitypolicyviolation", (e) => { refused.push(e.effectiveDirective); if (refused.length === 3) done(refused.sort()); });
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
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := profile.NewBuilder(profile.Limits{}).Recording()
	r.Modes, r.Duration = []profile.ModeStats{{Mode: profile.CPU, Rate: 99}, {Mode: profile.Wall, Rate: 99}}, time.Second
	b.load(page(t, r, export.FlameOptions{}))
	if text := b.text("#empty"); !strings.Contains(text, "no samples") {
		t.Errorf("%q", text)
	}
	b.picture("empty")
	for _, key := range []string{"ArrowDown", "Enter", "Escape", "n", "i", "s", "0", "+"} {
		b.press(key)
	}
	b.check(t)
	busy := synthetic(2, 1)
	b.load(page(t, busy.Select(profile.Selection{Threads: func(*profile.RecordedThread) bool { return false }}), export.FlameOptions{Base: busy}))
	b.eval("document.getElementById('toggle-base').click()", nil)
	b.check(t)
}

// TestPageOldBrowser: a browser that cannot unpack the recording says so.
func TestPageOldBrowser(t *testing.T) {
	b := startBrowser(t)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": "delete window.DecompressionStream"}, nil)
	b.load(page(t, synthetic(1, 1), export.FlameOptions{}))
	if text := b.text("#message"); !strings.Contains(text, "DecompressionStream") {
		t.Errorf("%q", text)
	}
	b.check(t)
}

// TestPageLarge: fifty thousand frames. How long they take is told, not judged.
func TestPageLarge(t *testing.T) {
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
	b.eval("clrsnap.zoom(5); new Promise((done) => setTimeout(() => done(Math.max(...Array.from({length: 20}, () => clrsnap.draw()))), 300))", &zoomed)
	b.eval("(() => { const e = document.getElementById('search'), t = performance.now(); e.value = 'Type12'; e.dispatchEvent(new Event('input')); clrsnap.draw(); return performance.now() - t; })()", &search)
	t.Logf("%d frames: layout %.0f ms, drawing at most %.1f ms, zoomed %.1f ms, search %.0f ms", s.Frames, s.LayoutTime, draw, zoomed, search)
	b.check(t)
}
