package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"clrsnap/profile"
)

// shop builds recordings of a small service; times are in ms.
type shop struct {
	*profile.Builder
	at time.Duration
}

func newShop() *shop {
	s := &shop{Builder: profile.NewBuilder(profile.Limits{})}
	for i, name := range []string{"Shop", "orders-1", "orders-2", "evil\x1b[31m", ".NET Timer", "", "Finalizer"} {
		s.Thread(profile.RecordedThread{OSThreadID: 4242 + i, ManagedThreadID: i + 1, Name: name})
	}
	s.Thread(profile.RecordedThread{Role: "ThreadPool worker"})
	return s
}

// stack makes a stack of names, base first: "Shop.Type.Method(…)" is user code, "System.…"
// framework, "lib!name" native, with a symbol or without, "kernel!name" kernel.
func (s *shop) stack(names ...string) int32 {
	node := int32(0)
	for _, name := range names {
		node = s.Child(node, s.Location(profile.Location{Function: s.Function(shopFunction(name))}))
	}
	return node
}

func shopFunction(name string) profile.Function {
	if module, symbol, ok := strings.Cut(name, "!"); ok {
		kind := profile.Native
		if module == "kernel" {
			kind = profile.Kernel
		}
		if symbol == "" {
			return profile.Function{Kind: kind, Display: "[" + module + "]", Short: "[" + module + "]", Module: module}
		}
		return profile.Function{Kind: kind, Method: symbol, Display: symbol, Short: symbol, Module: module}
	}
	display, signature := splitSignature(name)
	module, _, _ := strings.Cut(name, ".")
	if module == "System" {
		module = coreLib
	}
	return profile.Function{
		Kind: profile.Managed, Method: display, Display: display, Short: shorten(display), Signature: signature,
		Module: module,
	}
}

func (s *shop) add(n int, thread int32, mode profile.Mode, state profile.State, weight int, node int32) {
	for range n {
		s.at += time.Millisecond
		s.Add(profile.Sample{
			At: s.at, Weight: int64(weight) * 1e6, Thread: thread, Node: node, Mode: mode, State: state,
		})
	}
}

const (
	mainName   = "Shop.Program.Main(string[])"
	submitName = "Shop.Orders.Queue.Submit(System.Collections.Generic.Dictionary<string, Shop.Orders.Order>, " +
		"System.Threading.CancellationToken)"
	visitName   = "Shop.Tree.Visit(Shop.Node)"
	sortName    = "System.Array.Sort(T[], System.Collections.Generic.IComparer<T>)"
	waitName    = "System.Threading.Monitor.Wait(object, int)"
	evilName    = "Shop.Evil\x1b[2J.Run()"
	runtimeName = "libcoreclr.so!"
)

// busyShop is a recording with one of everything that the tables show.
func busyShop() *profile.Recording {
	s := newShop()
	cpu := func(n int, thread int32, names ...string) {
		s.add(n, thread, profile.CPU, profile.Running, 10, s.stack(names...))
	}
	cpu(700, 0, mainName, submitName, visitName, visitName, visitName)
	cpu(420, 1, mainName, submitName, sortName)
	cpu(300, 2, mainName, submitName, visitName, visitName, sortName)
	cpu(111, 2, mainName, submitName, "libc.so.6!memcpy")
	cpu(90, 3, evilName)
	cpu(60, 4, runtimeName, runtimeName)
	cpu(40, 5, waitName, "libc.so.6!pthread_cond_wait", "kernel!do_futex")
	cpu(7, 6, "Shop.Program.Main{lambda 1_0}()")
	cpu(2, 7)
	wall := func(n int, thread int32, state profile.State, names ...string) {
		s.add(n, thread, profile.Wall, state, 30, s.stack(names...))
	}
	wall(500, 0, profile.Running, mainName, submitName, visitName)
	wall(1500, 1, profile.Waiting, mainName, submitName, waitName, "libc.so.6!pthread_cond_wait")
	wall(100, 1, profile.Running, mainName, submitName, waitName)
	s.Add(profile.Sample{
		At: s.at, Weight: 3e9, Count: 100, Thread: 2, Node: s.stack(sortName), Mode: profile.Wall, Incomplete: true,
	})
	r := s.Recording()
	r.Start, r.Duration = time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.FixedZone("", 3600)), 20*time.Second
	r.Processes = []profile.Process{
		{PID: 4242, Command: "dotnet Shop.dll --port 80", Runtime: profile.Runtime{Version: "10.0.9", Shape: "shared"}},
	}
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 99, Source: profile.FromThreads, Samples: 1730, Lost: 70, Late: 9},
		{Mode: profile.Wall, Rate: 99, Got: 33.3, Samples: 2200, Lost: 1, Late: 300, Broken: 100, Released: 1},
	}
	r.Cost = profile.Cost{TargetCPU: 18 * time.Second, Processors: 2}
	r.Notes = []string{"Child 4300 could not be opened.\x1b[31m"}
	return r
}

// calmShop is busyShop as it was before: a function is slower now, one is new, one has vanished.
func calmShop() *profile.Recording {
	s := newShop()
	cpu := func(n int, thread int32, names ...string) {
		s.add(n, thread, profile.CPU, profile.Running, 10, s.stack(names...))
	}
	cpu(300, 0, mainName, submitName, visitName, visitName)
	cpu(410, 1, mainName, submitName, sortName)
	cpu(60, 2, mainName, submitName, "libc.so.6!memcpy")
	cpu(150, 3, "Shop.Cache.Evict(Shop.Node)")
	cpu(30, 4, runtimeName)
	cpu(24, 5, waitName, "libc.so.6!pthread_cond_wait", "kernel!do_futex")
	r := s.Recording()
	r.Duration = 20 * time.Second
	r.Processes = []profile.Process{
		{PID: 3131, Command: "dotnet Shop.dll --port 80", Runtime: profile.Runtime{Version: "10.0.9", Shape: "shared"}},
	}
	r.Modes = []profile.ModeStats{{Mode: profile.CPU, Rate: 99, Samples: 974}}
	r.Cost = profile.Cost{TargetCPU: 9800 * time.Millisecond, Processors: 2}
	return r
}

func TestTop(t *testing.T) {
	cpu, wall := profile.CPU, profile.Wall
	waiting := func(r *profile.Recording) *profile.Recording {
		return r.Select(profile.Selection{States: []profile.State{profile.Waiting}})
	}
	foreign := func(r *profile.Recording) *profile.Recording {
		return &profile.Recording{
			Threads: r.Threads[:1], Functions: r.Functions, Locations: r.Locations, Nodes: r.Nodes,
			Samples: r.Samples[:1],
		}
	}
	children := func(r *profile.Recording) *profile.Recording {
		r.Processes = append(r.Processes, profile.Process{PID: 5001}, profile.Process{PID: 5002})
		r.Threads[1].Process = 2
		return r
	}
	nothing := func(*profile.Recording) *profile.Recording { return &profile.Recording{} }
	for _, c := range []struct {
		name   string
		o      TopOptions
		change func(*profile.Recording) *profile.Recording
	}{
		{"plain", TopOptions{}, nil},
		{"80", TopOptions{Width: 80, Rows: 5}, nil},
		{"140-color", TopOptions{Width: 140, Color: true}, nil},
		{"cum", TopOptions{Sort: Cum, Mode: &cpu, Rows: 3, Width: 100}, nil},
		{"threads", TopOptions{ByThread: true, Mode: &wall, Rows: 2, Width: 100}, nil},
		{"waiting", TopOptions{Width: 100}, waiting},
		{"foreign", TopOptions{Width: 100}, foreign},
		{"children", TopOptions{Width: 100, Rows: 1}, children},
		{"nothing", TopOptions{Width: 100}, nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := busyShop()
			if c.change != nil {
				r = c.change(r)
			}
			var b bytes.Buffer
			if err := Top(&b, r, c.o); err != nil {
				t.Fatal(err)
			}
			golden(t, "top-"+c.name+".txt", b.Bytes())
			checkTerminal(t, b.String(), c.o.Color)
		})
	}
}

// checkTerminal requires that no control character from a target reaches the terminal.
func checkTerminal(t *testing.T, text string, color bool) {
	t.Helper()
	if color {
		for _, st := range []style{bold, dim, red, green, yellow, magenta, cyan, boldCyan} {
			text = strings.ReplaceAll(text, "\x1b["+string(st)+"m", "")
		}
		text = strings.ReplaceAll(text, "\x1b[0m", "")
	}
	if i := strings.IndexByte(text, '\x1b'); i >= 0 {
		t.Errorf("a control character gets through: %q", text[i:min(i+20, len(text))])
	}
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
			t.Errorf("spaces at the end of %q", line)
		}
	}
}

func TestDifference(t *testing.T) {
	cpu, wall := profile.CPU, profile.Wall
	for _, c := range []struct {
		name      string
		o         TopOptions
		base, now *profile.Recording
	}{
		{"plain", TopOptions{}, calmShop(), busyShop()},
		{"80", TopOptions{Width: 80, Rows: 4}, calmShop(), busyShop()},
		{"140-color", TopOptions{Width: 140, Color: true, Sort: Cum, Mode: &cpu}, calmShop(), busyShop()},
		{"back", TopOptions{Width: 100, Rows: 6}, busyShop(), calmShop()},
		{"no-mode", TopOptions{Mode: &wall}, calmShop(), busyShop()},
		{"itself", TopOptions{Width: 120, Rows: 3}, busyShop(), busyShop()},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Difference(&b, c.base, c.now, c.o); err != nil {
				t.Fatal(err)
			}
			golden(t, "diff-"+c.name+".txt", b.Bytes())
			checkTerminal(t, b.String(), c.o.Color)
		})
	}
}

func TestTopJSON(t *testing.T) {
	cpu := profile.CPU
	indented := func(write func(*bytes.Buffer) error) []byte {
		var b, out bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(b.String(), "}\n") || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("not one line: %q", b.String())
		}
		if err := json.Indent(&out, b.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	golden(t, "top.json", indented(func(b *bytes.Buffer) error { return TopJSON(b, busyShop(), TopOptions{Rows: 2}) }))
	golden(t, "diff.json", indented(func(b *bytes.Buffer) error {
		return DifferenceJSON(b, calmShop(), busyShop(), TopOptions{Mode: &cpu, Rows: 2})
	}))
	// Lists are never null, even if there is nothing in them.
	golden(t, "top-nothing.json",
		indented(func(b *bytes.Buffer) error { return TopJSON(b, &profile.Recording{}, TopOptions{}) }))
	golden(t, "diff-nothing.json", indented(func(b *bytes.Buffer) error {
		return DifferenceJSON(b, &profile.Recording{}, &profile.Recording{}, TopOptions{})
	}))
}

// TestTopHasAll: with all rows the flat shares of a table add up to the whole.
func TestTopHasAll(t *testing.T) {
	var b bytes.Buffer
	if err := TopJSON(&b, busyShop(), TopOptions{}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Modes []struct {
			jsonModeTotals
			Functions []jsonFunctionTop
			Threads   []jsonThreadTop
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, m := range got.Modes {
		flat, threads := 0.0, 0.0
		for _, f := range m.Functions {
			flat += *f.Flat.Seconds
			if *f.Cum.Seconds < *f.Flat.Seconds || f.Cum.Share > 1 {
				t.Errorf("%s: %+v", f.Display, f)
			}
		}
		for _, x := range m.Threads {
			threads += *x.Total.Seconds
		}
		if m.Mode == "cpu" {
			flat += 0.02 // two samples have no stack
		}
		if want := *m.Total.Seconds; flat < want-1e-6 || flat > want+1e-6 || threads < want-1e-6 ||
			threads > want+1e-6 {
			t.Errorf("%s: functions have %v s, threads %v s, of %v s", m.Mode, flat, threads, want)
		}
	}
}

func TestTopWriteError(t *testing.T) {
	for name, err := range map[string]error{
		"Top":            Top(failing{}, busyShop(), TopOptions{}),
		"Difference":     Difference(failing{}, calmShop(), busyShop(), TopOptions{}),
		"TopJSON":        TopJSON(failing{}, busyShop(), TopOptions{}),
		"DifferenceJSON": DifferenceJSON(failing{}, calmShop(), busyShop(), TopOptions{}),
	} {
		if !errors.Is(err, errFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSigned(t *testing.T) {
	for v, want := range map[float64]string{0.01: "0.0", -0.01: "0.0", 1: "+1.0", -1: "-1.0", 0: "0.0"} {
		if got := signed(fmt.Sprintf("%.1f", v)); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

// BenchmarkTop: tables of a million samples.
func BenchmarkTop(b *testing.B) {
	r := million()
	for b.Loop() {
		if err := Top(io.Discard, r, TopOptions{Rows: 20}); err != nil {
			b.Fatal(err)
		}
	}
}
