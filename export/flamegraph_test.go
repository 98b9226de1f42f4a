package export_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/export"
	"clrsnap/internal/display"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
)

func page(tb testing.TB, r *profile.Recording, o export.FlameOptions) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := export.FlameGraph(&b, r, o); err != nil {
		tb.Fatal(err)
	}
	if dir := *pictures; dir != "" {
		name := strings.ReplaceAll(tb.Name(), "/", "-") + ".html"
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

// figures are the numbers that a page shows for a function, in the unit of the mode.
type figures struct {
	Name, Signature, Module string
	Self, Total             float64
	BaseSelf, BaseTotal     float64
	Events                  float64
	Count                   int
	Func                    int
}

func (f *figures) key() string { return f.Name + f.Signature + "|" + f.Module }

// figuresOf computes in Go what the page computes in JavaScript.
func figuresOf(r *profile.Recording) map[string]*figures {
	out, of := map[string]*figures{}, make([]*figures, len(r.Functions))
	for i, f := range r.Functions {
		k := &figures{Name: strings.TrimSuffix(f.Display+", "+f.Fate, ", "), Signature: f.Signature, Module: f.Module}
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
				k.Events += float64(s.Events)
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

// frameNamed returns the heaviest frame with a name.
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

// middle returns where to click on a frame.
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

// stop ends the animation of a zoom before anything is checked. On a slow machine its last step may
// otherwise be still to come.
func (b *browser) stop() {
	b.tb.Helper()
	b.eval("new Promise((done) => setTimeout(() => requestAnimationFrame(() => done(true)), 300))", nil)
}

// TestPageFigures: for every choice the page shows the numbers that Go computes.
func TestPageFigures(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.media("prefers-color-scheme=light")
	b.load(page(t, r, export.FlameOptions{}))
	b.picture("light")
	if names := b.text("#table td:last-child"); !strings.Contains(names, "…FindValue") {
		t.Errorf("no long name shows its method: %q", names)
	}
	b.media("prefers-color-scheme=dark")
	b.until(`clrsnap.state().theme === "dark"`)
	b.picture("dark")
	b.media("prefers-color-scheme=light")
	cpu, wall := []profile.Mode{profile.CPU}, []profile.Mode{profile.Wall}
	only := func(id int) func(*profile.RecordedThread) bool {
		return func(t *profile.RecordedThread) bool { return t.OSThreadID == id }
	}
	everything := "mode: 0, states: 3, threads: 'merged', managed: false, native: false, idle: true, " +
		"waits: false, from: 0, to: Infinity"
	for _, tt := range []struct {
		name, choice string
		s            profile.Selection
	}{
		{"cpu", "", profile.Selection{Modes: cpu}},
		{"wall", "mode: 1", profile.Selection{Modes: wall}},
		{
			"wall, waiting", "mode: 1, states: 2", profile.Selection{
				Modes: wall, States: []profile.State{profile.Waiting},
			},
		},
		{
			"wall, running", "mode: 1, states: 1", profile.Selection{
				Modes: wall, States: []profile.State{profile.Running},
			},
		},
		{"wall, at work", "mode: 1, idle: false", profile.Selection{Modes: wall, Working: true}},
		{"wall, by wait", "mode: 1, waits: true", profile.Selection{Modes: wall}},
		{"wall, by wait, at work, each thread", "mode: 1, waits: true, idle: false, threads: 'each'", profile.Selection{
			Modes: wall, Working: true}},
		{"wall, by wait, managed", "mode: 1, waits: true, managed: true",
			profile.Selection{Modes: wall, Managed: true}},
		{"managed", "managed: true", profile.Selection{Modes: cpu, Managed: true}},
		{"native", "native: true", profile.Selection{Modes: cpu, Native: true}},
		{
			"managed and native", "mode: 1, managed: true, native: true",
			profile.Selection{Modes: wall, Managed: true, Native: true},
		},
		{"one thread", "threads: new Set([6])", profile.Selection{Modes: cpu, Threads: only(r.Threads[6].OSThreadID)}},
		{"each thread", "threads: 'each'", profile.Selection{Modes: cpu}},
		{
			"time", "from: 5e9, to: 8.5e9", profile.Selection{
				Modes: cpu, From: 5 * time.Second, To: 8500 * time.Millisecond,
			},
		},
		{"all at once", "mode: 1, states: 2, threads: new Set([0]), managed: true, from: 19e9", profile.Selection{
			Modes: wall, States: []profile.State{profile.Waiting}, Threads: only(r.Threads[0].OSThreadID),
			Managed: true, From: 19 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.eval("clrsnap.choose({"+everything+", plumbing: true, "+tt.choice+"})", nil)
			whole := r
			if strings.Contains(tt.choice, "waits") {
				whole = r.ByWait()
			}
			s := whole.Select(tt.s)
			b.checkFigures(t, figuresOf(s), s)
			b.checkTree(t, s, strings.Contains(tt.choice, "each"))
		})
		t.Run(tt.name+", folded", func(t *testing.T) {
			b.eval("clrsnap.choose({"+everything+", plumbing: false, "+tt.choice+"})", nil)
			whole := r.FoldFramework()
			if strings.Contains(tt.choice, "waits") {
				whole = r.ByWait().FoldFramework()
			}
			s := whole.Select(tt.s)
			b.checkFigures(t, figuresOf(s), s)
			b.checkTree(t, s, strings.Contains(tt.choice, "each"))
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
		t.Errorf("all of it is %v, want %v", w, all)
	}
	var hottest figures
	for _, g := range got {
		w := want[g.key()]
		if w == nil {
			t.Errorf("%s is shown, but was not chosen", g.key())
			continue
		}
		delete(want, g.key())
		if g.Self != w.Self || g.Total != w.Total || g.Count != w.Count || g.Events != w.Events {
			t.Errorf("%s: self %v, total %v, %d samples, %v events; want %v, %v, %d, %v",
				g.key(), g.Self, g.Total, g.Count, g.Events, w.Self, w.Total, w.Count, w.Events)
		}
		if g.Self > hottest.Self {
			hottest = g
		}
	}
	for k, w := range want {
		t.Errorf("%s is missing: %v", k, *w)
	}
	// The texts are the same.
	row := b.text("#table tbody tr:first-child td:first-child")
	if share := fmt.Sprintf("%.1f %%", 100*hottest.Self/all); !strings.HasPrefix(row, share) {
		t.Errorf("the first row says %q, want %s (%s)", row, share, hottest.Name)
	}
}

// framesInRun is the number of frames in the name of a run of framework frames.
var framesInRun = regexp.MustCompile(`: \d+(–\d+)? frames\]$`)

// checkTree compares every frame with its callers, and their weights.
func (b *browser) checkTree(t *testing.T, r *profile.Recording, byThread bool) {
	t.Helper()
	want, got := map[string]float64{}, map[string]float64{}
	for _, s := range r.Samples {
		path := ""
		if th := r.Threads[s.Thread]; byThread && th.OSThreadID == 0 {
			path = "/" + cmp.Or(th.Name, th.Role)
		} else if byThread {
			path = fmt.Sprintf("/%s (%d)", cmp.Or(th.Name, th.Role), th.OSThreadID)
		}
		want[path] += float64(s.Weight) // the root's, or the thread's
		if byThread {
			want[""] += float64(s.Weight)
		}
		if s.Incomplete {
			path += "/[incomplete stack]"
			want[path] += float64(s.Weight)
		}
		var names []string
		for l := range r.Stack(s.Node) {
			names = append(names, display.ShortName(&r.Functions[l.Function]))
		}
		for _, name := range slices.Backward(names) {
			path += "/" + name
			want[path] += float64(s.Weight)
		}
	}
	var all []frame
	b.eval("clrsnap.frames()", &all)
	paths := []string{""}
	for _, f := range all {
		if f.Depth > 0 {
			name := framesInRun.ReplaceAllString(f.Name, "]")
			paths = append(paths[:f.Depth], paths[f.Depth-1]+"/"+name)
		}
		got[paths[f.Depth]] += f.Total
	}
	if len(all) != len(want) {
		t.Errorf("%d frames, want %d", len(all), len(want))
	}
	for path, w := range want {
		if got[path] != w {
			t.Errorf("%s: %v, want %v", path, got[path], w)
		}
	}
}

// TestPageSearch: matching frames count once for each stack.
func TestPageSearch(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	r := synthetic(20, 1)
	b.load(page(t, r, export.FlameOptions{}))
	for _, tt := range []struct {
		typed   string
		matches func(*profile.Function) bool
	}{
		{"RULETREE", func(f *profile.Function) bool { return strings.Contains(f.Display+f.Fate, "RuleTree") }},
		{`/rule\w+\.apply|^SVR::/`, func(f *profile.Function) bool {
			return strings.Contains(f.Display+f.Fate, "RuleTree.Apply") || strings.HasPrefix(f.Display, "SVR::")
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
	b.eval("document.getElementById('search').value = '/(/'; "+
		"document.getElementById('search').dispatchEvent(new Event('input'))", nil)
	if text := b.text("#found"); !strings.Contains(text, "not a regular expression") {
		t.Errorf("a wrong expression: %q", text)
	}
	b.check(t)
}

// TestPageDiff: two recordings are compared by their shares.
func TestPageDiff(t *testing.T) {
	layer.Live(t)
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
		if g.Self != wantAfter.Self || g.Total != wantAfter.Total || g.BaseSelf != wantBefore.Self ||
			g.BaseTotal != wantBefore.Total {
			t.Errorf("%s: %+v, want %+v after %+v", g.key(), g, wantAfter, wantBefore)
		}
	}
	if seen != len(after)+len(before) {
		t.Errorf("%d figures, want %d", seen, len(after)+len(before))
	}
	b.eval("document.querySelector('#table input[value=total]').click(); "+
		"document.getElementById('sort-change').click()", nil)
	b.picture("diff")
	b.eval("document.getElementById('toggle-base').click()", nil)
	if v := b.state().View; v[1] != float64(good.Weight(profile.CPU)) {
		t.Errorf("the view of what was before is %v, want %v", v, good.Weight(profile.CPU))
	}
	b.media("prefers-color-scheme=dark")
	b.picture("diff-dark")
	b.check(t)
}
