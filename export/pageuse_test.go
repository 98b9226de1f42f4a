package export_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"clrsnap/export"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
)

// TestPageKeys goes through the page with mouse and keys, as a person does.
func TestPageKeys(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	b.load(page(t, synthetic(20, 1), export.FlameOptions{}))
	all := b.state()
	price := b.frameNamed("PriceEngine.Quote")
	b.click(b.middle(price.Index))
	b.stop()
	s := b.state()
	if s.Focus.Index != price.Index || math.Abs(s.View[1]-s.View[0]-price.Total) > 1 ||
		s.Selected.Index != price.Index {
		t.Errorf("a click zooms to %+v, view %v; want %+v", s.Focus, s.View, price)
	}
	if crumbs := b.text("#crumbs"); !strings.Contains(crumbs, "Tracing.Invoke{async}") ||
		!strings.Contains(crumbs, "PriceEngine.Quote") {
		t.Errorf("ancestors: %q", crumbs)
	}
	if detail := b.text("#detail"); !strings.Contains(detail,
		"Shop.Domain.Pricing.PriceEngine.Quote(Basket, ref Discounts)") ||
		!strings.Contains(detail, fmt.Sprintf("(%.1f %%)",
			100*price.Total/all.Weight)) || !strings.Contains(detail, "tier-1") {
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
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -50,
		"modifiers": 2}, nil)
	b.stop()
	if s, now := b.state(), b.placeOf(price.Index); s.View[1]-s.View[0] > 0.9*all.Weight || now.X > x ||
		now.X+now.Width < x {
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
	b.media("prefers-reduced-motion=reduce")
	b.eval(fmt.Sprintf("clrsnap.zoom(%d)", price.Index), nil)
	if s := b.state(); math.Abs(s.View[1]-s.View[0]-price.Total) > 1 {
		t.Errorf("where motion is not wanted, the view still moves: %v", s.View)
	}
	b.press("0")
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
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.load(page(t, r, export.FlameOptions{}))
	cpu := r.Select(profile.Selection{Modes: []profile.Mode{profile.CPU}})
	want := figuresOf(cpu)["Shop.Domain.Pricing.RuleTree.Apply(Node, decimal)|Shop.Domain"]
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
	if callers > want.Total || callers < 0.95*want.Total || callees+all[0].Self != want.Total ||
		self+all[0].Self != want.Self {
		t.Errorf("callers %v, callees %v, self %v; want %v, %v",
			callers, callees, self+all[0].Self, want.Total, want.Self)
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

// TestPageTime: a range is dragged on the time strip, and moved with keys.
func TestPageTime(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.load(page(t, r, export.FlameOptions{}))
	var box struct{ Left, Top, Width, Height float64 }
	b.eval("document.querySelector('.stripArea').getBoundingClientRect().toJSON()", &box)
	y := box.Top + box.Height/2
	b.mouse("mouseMoved", box.Left+box.Width/4, y)
	b.mouse("mousePressed", box.Left+box.Width/4, y)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": box.Left + box.Width/3, "y": y,
		"button": "left", "buttons": 1}, nil)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": box.Left + box.Width/2, "y": y,
		"button": "left", "buttons": 1}, nil)
	b.mouse("mouseReleased", box.Left+box.Width/2, y)
	var chosen struct{ From, To float64 }
	b.eval("clrsnap.state()", &chosen)
	if math.Abs(chosen.From-5e9) > 5e7 || math.Abs(chosen.To-10e9) > 5e7 {
		t.Fatalf("a quarter to a half of 20 s is %+v", chosen)
	}
	s := r.Select(profile.Selection{
		Modes: []profile.Mode{profile.CPU}, From: time.Duration(math.Ceil(chosen.From)),
		To: time.Duration(math.Ceil(chosen.To)),
	})
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

// TestPageWall: running and waiting are shown apart, and threads side by side.
func TestPageWall(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.load(page(t, r, export.FlameOptions{}))
	b.eval("document.querySelector('#modes input[value=\"1\"]').click()", nil)
	work := r.Select(profile.Selection{Modes: []profile.Mode{profile.Wall}, Working: true})
	if text := b.text("#summary"); !strings.Contains(text, "202 thread-seconds") ||
		!strings.Contains(text, "Left out: idle threads, 16.0 % of the whole (finalizer ") {
		t.Errorf("summary: %q", text)
	}
	if s := b.state(); math.Abs(s.Weight-float64(work.Weight(profile.Wall))) > 1 {
		t.Errorf("without idle threads it is %v, want %v", s.Weight, work.Weight(profile.Wall))
	}
	b.picture("wall-working")
	b.press("w")
	if text := b.text("#summary"); !strings.Contains(text, "240 thread-seconds") || strings.Contains(text, "Left out") {
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

// TestPagePhone: everything fits on a phone, and is large enough for a finger.
func TestPagePhone(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(390, 844, true)
	b.load(page(t, synthetic(20, 1), export.FlameOptions{}))
	b.checkFits(t)
	b.picture("phone")
	price := b.frameNamed("PriceEngine.Quote")
	b.eval("document.getElementById('graph').scrollIntoView()", nil)
	tap := func() {
		x, y := b.middle(price.Index)
		b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchStart",
			"touchPoints": []map[string]any{{"x": x, "y": y}}}, nil)
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
		b.call("Input.dispatchTouchEvent", map[string]any{"type": kind,
			"touchPoints": []map[string]any{{"x": x - apart, "y": y, "id": 1}, {"x": x + apart, "y": y, "id": 2}}}, nil)
	}
	touch("touchStart", 20)
	touch("touchMove", 30)
	touch("touchMove", 40)
	b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchEnd", "touchPoints": []any{}}, nil)
	b.stop()
	if now := b.state(); math.Abs((before.View[1]-before.View[0])/(now.View[1]-now.View[0])-2) > 0.1 ||
		now.Focus.Index != 0 {
		t.Errorf("fingers that go twice as far apart change the view from %v to %v", before.View, now.View)
	}
	b.eval("document.getElementById('table').scrollIntoView()", nil)
	b.picture("phone-table")
	b.check(t)
}

// checkFits reports elements that are wider than a phone, or too small for a finger.
func (b *browser) checkFits(t *testing.T) {
	t.Helper()
	var size struct{ Wide, Small []string }
	b.eval(`(() => {
		const visible = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());
		const box = (e) => e.getBoundingClientRect();
		return {
			wide: visible("body *")
				.filter((e) => box(e).right > 391 && !e.closest(".rows") && !e.matches(".handle, option, optgroup"))
				.map((e) => e.tagName + "#" + e.id + "." + e.className),
			small: visible("button, select, input[type=search], .segments label, #toggles label")
				.filter((e) => box(e).height < 39.5 || box(e).width < 39.5)
				.map((e) => e.outerHTML.slice(0, 100)),
		};
	})()`, &size)
	if len(size.Wide) > 0 {
		t.Errorf("wider than the screen: %v", size.Wide)
	}
	if len(size.Small) > 0 {
		t.Errorf("too small for a finger: %v", size.Small)
	}
	var wider bool
	if b.eval("document.documentElement.scrollWidth > 390 || innerWidth > 390", &wider); wider {
		t.Error("the page scrolls sideways")
	}
}
