package lines

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestWitness compares the lines with ClrMD's lines of the same process, frame by frame. Where the two differ,
// the sources must agree with ours, and not with ClrMD's.
func TestWitness(t *testing.T) {
	layer.Matrix(t)
	for _, version := range []string{"8.0.33", "9.0.22", "10.0.14"} {
		t.Run(version, func(t *testing.T) {
			runtime, err := testenv.Installed(version)
			if err != nil {
				t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
			}
			for _, m := range modes {
				if m.name == "tier-0" || m.name == "replaced" {
					t.Run(m.name, func(t *testing.T) { testWitness(t, runtime, m) })
				}
			}
		})
	}
}

func testWitness(t *testing.T, runtime string, m mode) {
	m.o.Runtime = runtime
	// The runtime's debugging library, asked for the lines of the stub that calls several delegates, takes the stub
	// for a method of Func<int, int>, finds no lines, and ends in a segmentation fault; in some processes each
	// time.
	m.o.Args = append([]string{"--without", "multicast"}, m.o.Args...)
	a := testenv.Start(t, "lines", m.o)
	c := newComparison(t, a, runtime, m)
	theirs := clrmd(t, a)
	agrees := func() bool { return m.name == "replaced" || c.agrees(theirs) } // witnessRules have ClrMD's errors
	for range 3 {
		if agrees() {
			break
		}
		theirs = clrmd(t, a)
	}
	if !agrees() {
		t.Skip("NOT JUDGED: ClrMD contradicts what the program says of the lines of the method that all stacks have")
	}
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &witnessed{c: c, theirs: theirs}
	for i := range snap.Threads {
		w.thread(&snap.Threads[i])
	}
	t.Logf("%d frames of the program, %d with the same line; explained: %v", w.frames, w.same, w.c.ruled)
	if w.frames < 500 || (w.same+w.c.ruled["replaced"])*10 < w.frames*9 {
		t.Errorf("only %d frames, %d with the same line", w.frames, w.same)
	}
	livetest.EndsWell(t, a)
}

// agrees reports whether ClrMD has StackTrace's lines for the method that calls every place. On a busy machine
// ClrMD once had other lines for a third of the frames of a process, and the right lines the next time.
func (c *comparison) agrees(theirs map[frameIP]clrmdFrame) bool {
	const enter = "Lines.Here.Enter"
	lines := map[int]bool{}
	for _, want := range c.stacks {
		for i := range want.Frames {
			if f := &want.Frames[i]; f.Exact() == enter {
				lines[f.Line] = true
			}
		}
	}
	for _, f := range theirs {
		if f.Method == enter && !lines[f.Line] {
			return false
		}
	}
	return true
}

// A frameIP identifies a frame by its thread and its place.
type frameIP struct {
	tid int
	ip  string
}

// clrmd returns ClrMD's frames.
func clrmd(t *testing.T, a *testenv.App) map[frameIP]clrmdFrame {
	t.Helper()
	out := testenv.AskClrMD(t, "lines", a)
	all := map[frameIP]clrmdFrame{}
	s := bufio.NewScanner(bytes.NewReader(out))
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var th struct {
			OSThreadID int          `json:"osThreadId"`
			Frames     []clrmdFrame `json:"frames"`
		}
		if err := json.Unmarshal(s.Bytes(), &th); err != nil {
			t.Fatalf("ClrMD: %q: %v", s.Text(), err)
		}
		for _, f := range th.Frames {
			all[frameIP{th.OSThreadID, f.IP}] = f
		}
	}
	return all
}

// clrmdFrame is a frame of ClrMD's.
type clrmdFrame struct {
	IP     string `json:"ip"`
	Method string `json:"method"`
	IL     int    `json:"il"`
	File   string `json:"file"`
	Line   int    `json:"line"`
}

type witnessed struct {
	c            *comparison
	theirs       map[frameIP]clrmdFrame
	frames, same int
}

func (w *witnessed) thread(th *snapshot.Thread) {
	want, ok := w.c.stacks[th.OSThreadID]
	if !ok {
		return
	}
	for i := range th.Frames {
		f := &th.Frames[i]
		if f.Kind != snapshot.Managed || f.Inlined || f.Module != "lines" {
			continue
		}
		they, ok := w.theirs[frameIP{th.OSThreadID, fmt.Sprintf("%#x", f.IP)}]
		if !ok {
			w.c.t.Errorf("%s: ClrMD has no frame %s+%#x", want.Scenario, f.Method, f.Offset)
			continue
		}
		w.frames++
		o := observed{
			c: w.c, want: want, w: testenv.Frame{Method: f.Method}, got: f, leaf: w.c.callers[want.Scenario],
			theirs: place{they.File, they.Line},
		}
		if f.Line != nil {
			o.ours = place{f.Line.File, f.Line.Line}
		}
		if o.ours == o.theirs || o.none() {
			w.same++
			continue
		}
		// StackTrace's frame of the method, if any, tells whether the method called Stop.
		if len(want.Frames) > 1 && want.Frames[1].Exact() == f.Method {
			o.i = 1
		}
		o.explain(witnessRules, "ClrMD says", o.theirs)
	}
}

// witnessRules are about ClrMD's lines. In each case the sources say that ours is right.
var witnessRules = []rule{
	// ClrMD takes the method where the method left the handler's protected code, like StackTrace.
	{"handler", func(o *observed) bool {
		return o.right(o.ours) && !o.right(o.theirs) && handles(o.want.Scenario)
	}},
	// ClrMD looks up the frame's code by the method's newest version: OSR methods and methods that have
	// tiered up while on the stack have several versions.
	{"OSR", func(o *observed) bool { return (o.right(o.ours) || o.inHere()) && o.got.Tier == "OSR" }},
	{"replaced", func(o *observed) bool {
		return (o.right(o.ours) || o.inHere()) && o.c.mode.name == "replaced"
	}},
	// As in rules.
	{"call without a point", func(o *observed) bool { return o.right(o.ours) && !o.right(o.theirs) }},
	{"call without a point, in two methods' lines", func(o *observed) bool { return o.isLeaf() && o.ours == o.leaf }},
	{"approximate", (*observed).approximate},
}
