package perfevent

import (
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"
)

// TestChildren: children of the target are followed with Options.Children, and not otherwise.
func TestChildren(t *testing.T) {
	layer.Live(t)
	eachScope(t, testChildren)
}

func testChildren(t *testing.T, scope Scope) {
	for _, children := range []bool{false, true} {
		p := start(t, "2")
		tid, _ := p.burner()
		e := open(t, Options{PID: p.pid, Period: time.Millisecond / 4, Children: children, Scope: scope})
		p.command("f")
		child := p.number("child")
		var own, others, started int
		readUntil(t, e, func(r *Record) {
			switch {
			case r.Kind == Started && r.PID == child:
				started++
				if r.TID != child || r.ParentPID != p.pid || others > 0 {
					t.Errorf("after %d samples: %+v", others, r)
				}
			case r.Kind == Sampled && r.TID == tid:
				own++
			case r.Kind == Sampled && r.PID == child:
				others++
			case r.Kind != Lost && r.PID != p.pid && r.PID != child:
				t.Errorf("%+v", r)
			}
		}, func() bool { return own >= 500 && (others >= 500 || !children) })
		if !children && others+started > 0 {
			t.Errorf("%d samples of a child that was not to be followed", others)
		}
		if children && scope == PerThread && started != 1 {
			t.Errorf("%d records of the child's start", started)
		}
		end(t, child)
	}
}

// TestExec: a process that executes another program is still sampled.
func TestExec(t *testing.T) {
	layer.Live(t)
	p := start(t, "2s")
	sleeper := p.number("sleeper")
	e := open(t, Options{PID: p.pid, Period: time.Millisecond, Scope: PerThread})
	p.command("x")
	executed, samples, sleeperEnded := 0, 0, 0
	readUntil(t, e, func(r *Record) {
		switch r.Kind {
		case Executed:
			executed++
			if r.PID != p.pid || r.TID != p.pid || r.Name != "target" {
				t.Errorf("%+v", r)
			}
		case Ended:
			if r.TID == sleeper {
				sleeperEnded++
			}
		case Sampled:
			if executed > 0 {
				samples++
			}
		}
	}, func() bool { return samples >= 500 })
	if executed != 1 || sleeperEnded != 1 {
		t.Errorf("%d records of the new program, %d of the end of a thread", executed, sleeperEnded)
	}
}

// TestOldKernel: other processes are left out even without the features of newer kernels.
func TestOldKernel(t *testing.T) {
	layer.Live(t)
	p := start(t, "2")
	tid, _ := p.burner()
	e, err := openWith(Options{PID: p.pid, Period: time.Millisecond, Scope: PerThread}, features{kernel: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p.command("f")
	child := p.number("child")
	defer end(t, child)
	samples := 0
	visit := func(r *Record) {
		if r.Kind != Lost && r.PID != p.pid {
			t.Errorf("%+v", r)
		}
		if r.Kind == Sampled && r.TID == tid {
			samples++
		}
	}
	readUntil(t, e, visit, func() bool { return samples >= 300 && e.Stats().Foreign >= 300 })
	if err := e.Stop(visit); err != nil {
		t.Fatal(err)
	}
}
