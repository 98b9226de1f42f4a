package profile

import (
	"slices"
	"testing"
	"time"

	"clrsnap/snapshot"
)

// moment is a sample of one second, its frames leaf first.
type moment struct {
	mode   Mode
	role   string
	state  State
	frames []Function
}

func recordingOf(stacks ...moment) *Recording {
	b := NewBuilder(Limits{})
	for i, s := range stacks {
		var locations []int32
		for j, f := range s.frames {
			locations = append(locations, b.Location(Location{Function: b.Function(f), Offset: uint64(j)}))
		}
		b.Add(Sample{
			At: time.Duration(i), Weight: int64(time.Second), Thread: b.Thread(RecordedThread{Role: s.role}),
			Node: b.Stack(locations), Mode: s.mode, State: s.state,
		})
	}
	return b.Recording()
}

// shown returns the names of a sample's stack, leaf first.
func shown(r *Recording, x *Sample) []string {
	out := []string{}
	for l := range r.Stack(x.Node) {
		f := &r.Functions[l.Function]
		name := f.Display
		if name == "" {
			name = f.Module + "!" + f.Method
		}
		out = append(out, name)
	}
	return out
}

func TestRoles(t *testing.T) {
	method := func(name string) Function {
		return Function{Kind: snapshot.Managed, Module: "Shop", Method: name, Display: name}
	}
	native := func(module, name string) Function {
		return Function{Kind: snapshot.Native, Module: module, Method: name}
	}
	clr, jit, libc := native("libcoreclr.so", ""), native("libclrjit.so", ""), native("libc.so.6", "")
	yield := Function{Kind: snapshot.Kernel, Module: "kernel", Method: "do_sched_yield"}
	event := Function{Kind: snapshot.Event, Display: "gen 2, induced"}
	list := func(f ...Function) []Function { return f }
	for name, c := range map[string]struct {
		s    moment
		want []string
	}{
		"GC":            {moment{CPU, "GC", Running, list(clr, clr, libc)}, []string{"[GC]"}},
		"GC, no stack":  {moment{CPU, "Background GC", Running, nil}, []string{"[GC]"}},
		"GC that waits": {moment{Wall, "GC", Waiting, list(clr, libc)}, nil},
		"GC that yields": {moment{CPU, "GC", Running, list(yield, libc, clr)}, []string{
			"kernel!do_sched_yield", "[GC]",
		}},
		"GC with symbols": {moment{CPU, "GC", Running, list(clr, native("libcoreclr.so", "mark"), libc)}, []string{
			"[GC]", "libcoreclr.so!mark", "[GC]",
		}},
		"tiering": {moment{CPU, "Tiered compilation", Running, list(jit, clr, libc)}, []string{"[tiered compilation]"}},
		"finalizer": {moment{CPU, "Finalizer", Running, list(clr, method("Finalize"), clr, libc)}, []string{
			"libcoreclr.so!", "Finalize", "[finalizer]",
		}},
		"JIT": {moment{CPU, "", Running, list(clr, jit, yield, jit, clr, method("Main"), clr)}, []string{
			"[JIT]", "kernel!do_sched_yield", "[JIT]", "libcoreclr.so!", "Main", "libcoreclr.so!",
		}},
		"JIT with symbols": {moment{CPU, "", Running, list(native("libclrjit.so", "morph"), clr,
			method("Main"))}, []string{
			"libclrjit.so!morph", "[JIT]", "libcoreclr.so!", "Main",
		}},
		"JIT calls a method": {moment{CPU, "", Running, list(clr, method("Load"), clr, jit,
			method("Main"))}, []string{
			"libcoreclr.so!", "Load", "[JIT]", "Main",
		}},
		"ordinary": {moment{CPU, "", Running, list(libc, clr, method("Main"))}, []string{
			"libc.so.6!", "libcoreclr.so!", "Main",
		}},
		"no stack": {moment{CPU, "", Running, nil}, []string{}},
		"event":    {moment{GC, "Finalizer", Running, list(event)}, []string{"gen 2, induced"}},
	} {
		r := recordingOf(c.s)
		now := r.Select(Selection{Native: true, Working: true, Roles: true})
		switch {
		case c.want == nil:
			if len(now.Samples) != 0 {
				t.Errorf("%s: %v, want nothing", name, shown(now, &now.Samples[0]))
			}
		case len(now.Samples) != 1:
			t.Errorf("%s: %d samples", name, len(now.Samples))
		default:
			if got := shown(now, &now.Samples[0]); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
		// Without Roles, Select names nothing and leaves nothing out.
		if plain := r.Select(Selection{Native: true}); len(plain.Samples) != 1 ||
			len(shown(plain, &plain.Samples[0])) != len(c.s.frames) {
			t.Errorf("%s: changed without being asked", name)
		}
	}
}

func TestIdleTotals(t *testing.T) {
	method := func(name string) Function { return Function{Kind: snapshot.Managed, Module: coreLib, Method: name} }
	libc := Function{Kind: snapshot.Native, Module: "libc.so.6"}
	idle := []Function{libc, method(lifoWait), method(workerStart)}
	r := recordingOf(
		moment{Wall, "ThreadPool worker", Waiting, idle}, moment{Wall, "ThreadPool worker", Running, idle},
		moment{Wall, "Finalizer", Waiting, []Function{libc}}, moment{Wall, "", Waiting, []Function{libc}},
		moment{CPU, "ThreadPool worker", Running, idle},
	)
	got := r.IdleTotals(Wall)
	if len(got) != 2 || got[0].Idle != snapshot.IdleWorker || got[0].Total.All().Samples != 2 ||
		got[0].Total[Waiting].Weight != int64(time.Second) || got[1].Idle != "finalizer" {
		t.Errorf("%+v", got)
	}
	at := r.IdleSamples()
	if len(at) != 2 || !slices.Equal(at[snapshot.IdleWorker], []int32{0, 1, 4}) ||
		!slices.Equal(at["finalizer"], []int32{2}) {
		t.Errorf("%v", at)
	}
	left := r.Select(Selection{Working: true})
	if len(left.Samples) != 1 || left.Samples[0].At != 3 {
		t.Errorf("%+v are left", left.Samples)
	}
}
