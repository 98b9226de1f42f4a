package why

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/procfs"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// frame makes a frame of the program's own method, of a framework method, or of a native "library!function".
func frame(method string) snapshot.Frame {
	if library, function, ok := strings.Cut(method, "!"); ok {
		return snapshot.Frame{Kind: snapshot.Native, Method: function, Display: function, Module: library, SP: 0x1000}
	}
	f := snapshot.Frame{Kind: snapshot.Managed, Method: method, Display: method, Module: "Shop", SP: 0x1000}
	if strings.HasPrefix(method, "IL_STUB") {
		f.Module = ""
	}
	if strings.HasPrefix(method, "System.") {
		f.Module = "System.Private.CoreLib"
		if strings.HasPrefix(method, "System.Net.Http.") {
			f.Module = "System.Net.Http"
		}
	}
	return f
}

// native makes a frame of a library.
func native(module string) snapshot.Frame {
	return snapshot.Frame{Kind: snapshot.Native, Module: module}
}

// stack makes a stack, leaf first.
func stack(methods ...string) (out []snapshot.Frame) {
	for i, m := range methods {
		f := frame(m)
		f.SP += uint64(0x100 * i)
		out = append(out, f)
	}
	return out
}

// waiting makes a blocked thread.
func waiting(id int, w snapshot.Wait, methods ...string) snapshot.Thread {
	w.Certain = true
	return snapshot.Thread{
		OSThreadID: id, ManagedThreadID: id, ThreadID: uint64(id) << 8, Name: fmt.Sprintf("orders-%d", id),
		Mode: "preemptive", State: "waiting (futex)", Complete: true, Wait: &w, Frames: stack(methods...),
	}
}

// running makes a thread that runs.
func running(id int, methods ...string) snapshot.Thread {
	t := waiting(id, snapshot.Wait{}, methods...)
	t.Wait, t.State, t.Mode = nil, "running", "cooperative"
	return t
}

// worker makes a thread a pool worker.
func worker(t snapshot.Thread) snapshot.Thread {
	t.Role = gather.WorkerRole
	return t
}

// holding makes a thread hold a lock.
func holding(t snapshot.Thread, object uint64) snapshot.Thread {
	t.Holds = append(t.Holds, snapshot.Wait{
		Kind: snapshot.MonitorEnter, Object: object, Type: "Shop.Order", Recursion: 1, Certain: true,
	})
	return t
}

// wants is a wait for the lock of an object.
func wants(object uint64, owner int) snapshot.Wait {
	w := snapshot.Wait{Kind: snapshot.MonitorEnter, Object: object, Type: "Shop.Order", Timeout: snapshot.Forever}
	if owner != 0 {
		w.Owner = &snapshot.ThreadRef{OSThreadID: owner, ManagedThreadID: owner}
	}
	return w
}

const tick = time.Second

// looksAt makes evidence of looks one second apart, in which nobody runs.
func looksAt(looks ...[]snapshot.Thread) *evidence {
	e := &evidence{Evidence: gather.Evidence{Process: snapshot.Process{PID: 42,
		Runtime: snapshot.Runtime{Path: "/usr/lib/libcoreclr.so"}}}}
	for i, threads := range looks {
		l := gather.Look{
			At: time.Duration(i) * tick, Until: time.Duration(i+1) * tick, Snap: &snapshot.Snapshot{Threads: threads},
			Ran: map[int]procfs.Schedstat{}, After: map[int]procfs.Schedstat{},
		}
		for _, t := range threads {
			l.Ran[t.OSThreadID] = procfs.Schedstat{Running: time.Millisecond, Runs: 7}
			l.After[t.OSThreadID] = l.Ran[t.OSThreadID]
		}
		l.MarkStill()
		e.Looks = append(e.Looks, l)
	}
	e.Moments = []gather.Moment{{}, {At: e.Span()}}
	return e
}

// same makes evidence of several equal looks.
func same(n int, threads ...snapshot.Thread) *evidence {
	looks := make([][]snapshot.Thread, n)
	for i := range looks {
		looks[i] = append([]snapshot.Thread(nil), threads...)
	}
	return looksAt(looks...)
}

// runs makes a thread use a share of a CPU, and wait for a CPU during another share of the time.
func (e *evidence) runs(id int, ran, ready float64) *evidence {
	for i := range e.Looks {
		at := func(look int) procfs.Schedstat {
			d := float64(look) * float64(tick)
			return procfs.Schedstat{Running: time.Duration(ran * d), Ready: time.Duration(ready * d),
				Runs: uint64(look + 1)}
		}
		e.Looks[i].Ran[id], e.Looks[i].After[id] = at(i), at(i+1)
		e.Looks[i].MarkStill()
	}
	return e
}

// recorded adds a recording of some seconds.
func (e *evidence) recorded(seconds int, modes ...profile.Mode) *recorder {
	b := profile.NewBuilder(profile.Limits{Samples: 1 << 20, Nodes: 1 << 16, Functions: 1 << 12})
	r := &recorder{b: b, e: e}
	r.duration = time.Duration(seconds) * time.Second
	for _, m := range modes {
		r.stats = append(r.stats, profile.ModeStats{Mode: m})
	}
	return r
}

// recorder makes a recording.
type recorder struct {
	b        *profile.Builder
	e        *evidence
	duration time.Duration
	stats    []profile.ModeStats
	threads  map[int]int32

	signature string // of methods of .NET
}

// add adds a sample: a stack, leaf first, and on top of the stack events, "outer|inner", if any.
func (r *recorder) add(id int, x profile.Sample, event string, methods ...string) *recorder {
	if r.threads == nil {
		r.threads = map[int]int32{}
	}
	if _, ok := r.threads[id]; !ok {
		r.threads[id] = r.b.Thread(profile.RecordedThread{OSThreadID: id})
	}
	node := int32(0)
	for i := len(methods) - 1; i >= 0; i-- {
		f := frame(methods[i])
		fn := profile.Function{Kind: f.Kind, Method: f.Method, Display: f.Display, Module: f.Module}
		if f.Module == "System.Private.CoreLib" {
			fn.Signature = r.signature
		}
		at := r.b.Function(fn)
		node = r.b.Child(node, r.b.Location(profile.Location{Function: at}))
	}
	for event := range strings.SplitSeq(event, "|") {
		if event == "" {
			continue
		}
		at := r.b.Function(profile.Function{Kind: snapshot.Event, Display: event, Short: event})
		node = r.b.Child(node, r.b.Location(profile.Location{Function: at}))
	}
	x.Thread, x.Node, x.Count = r.threads[id], node, max(x.Count, 1)
	r.b.Add(x)
	return r
}

// done makes the recording part of the evidence.
func (r *recorder) done() *evidence {
	out := r.b.Recording()
	out.Duration, out.Modes = r.duration, r.stats
	r.e.Samples = out
	return r.e
}

// verdict requires exactly one verdict of a cause, with some texts.
func verdict(t *testing.T, list []profile.Verdict, cause profile.Cause, c profile.Certainty, says ...string) {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d verdicts: %v", len(list), list)
	}
	v := &list[0]
	if v.Cause != cause || v.Certainty != c {
		t.Errorf("%s, %s: %s", v.Cause, v.Certainty, v.Text)
	}
	if len(v.Evidence) == 0 {
		t.Error("no evidence")
	}
	all := v.Text
	for _, e := range v.Evidence {
		all += "\n" + e.Text
	}
	for _, s := range says {
		if !strings.Contains(all, s) {
			t.Errorf("%q is not in:\n%s", s, all)
		}
	}
}

// none requires that there are no verdicts.
func none(t *testing.T, list []profile.Verdict) {
	t.Helper()
	for _, v := range list {
		t.Errorf("%s, %s: %s", v.Cause, v.Certainty, v.Text)
	}
}
