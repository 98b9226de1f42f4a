package inlined

import (
	"context"
	"flag"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/bridge"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/inlining"
	"clrsnap/internal/livetest"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

var duration = flag.Duration("inlined", layer.Size(3*time.Second, 5*time.Minute),
	"how `long` each program is looked at")

// programs run with nothing precompiled, so that the JIT compiles the framework, too: with full
// optimisation at once, and with tiers and profiles, by which the JIT inlines virtual calls on
// trust.
var programs = []struct {
	name string
	env  []string
}{
	{"busy", []string{"DOTNET_ReadyToRun=0", "DOTNET_TieredCompilation=0"}},
	{"busy",
		[]string{"DOTNET_ReadyToRun=0", "DOTNET_TC_CallCountThreshold=5", "DOTNET_TC_BackgroundWorkerTimeoutMs=0"}},
	{"scenarios", []string{"DOTNET_ReadyToRun=0", "DOTNET_TieredCompilation=0"}},
}

// TestInlined: no proof contradicts the runtime's recorded tree of the same code, and every method
// claimed as inlined is among the events of the JIT.
func TestInlined(t *testing.T) {
	layer.Proof(t)
	for _, runtime := range layer.Size([]string{testenv.DefaultRuntime, testenv.NewestRuntime}, testenv.AllRuntimes()) {
		for _, p := range programs {
			t.Run(testenv.Name(runtime)+" "+p.name+" "+strings.Join(p.env[1:], " "), func(t *testing.T) {
				testenv.Kit(t).Need(t, runtime)
				list := filepath.Join(t.TempDir(), "inlinings")
				env := append(livetest.WatchInlinings(t, runtime, list), "DOTNET_RichDebugInfo=1")
				a := testenv.Start(t, p.name, testenv.Options{Runtime: runtime, Env: append(env, p.env...)})
				compare(t, a, list)
			})
		}
	}
}

// compare looks at a program for a while, and compares the proofs with the trees and the events.
func compare(t *testing.T, a *testenv.App, list string) {
	j := judge{T: t, p: livetest.Open(t, a, clrsnap.Options{Inlined: true}), list: list}
	j.s = clrsnap.Inside(bridge.Access{}).Session(j.p)
	j.look(*duration)
	j.verdict()
	livetest.EndsWell(t, a)
}

// TestInlinedService is TestInlined of an ASP.NET Core service under load, with tiers and profiles.
func TestInlinedService(t *testing.T) {
	layer.Full(t)
	for _, b := range testenv.AspNetRuntimes(t) {
		t.Run(b.Version, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "inlinings")
			env := append(livetest.WatchInlinings(t, b.Runtime, list), "DOTNET_RichDebugInfo=1", "DOTNET_ReadyToRun=0",
				"DOTNET_TC_BackgroundWorkerTimeoutMs=0")
			a := testenv.Start(t, "web", testenv.Options{Runtime: b.Runtime, Env: env})
			ctx, end := context.WithCancel(t.Context())
			defer end()
			url := a.Ask("url")[0] + "/orders/17"
			for range 2 {
				go func() {
					for ctx.Err() == nil {
						r, err := http.Get(url)
						if err != nil {
							return // the server is ending
						}
						_, _ = io.Copy(io.Discard, r.Body)
						r.Body.Close()
					}
				}()
			}
			compare(t, a, list)
		})
	}
}

// judge compares proofs with trees.
type judge struct {
	*testing.T
	p    *clrsnap.Process
	s    *session.Process
	list string // file with the events of the JIT

	seen                                  map[[2]arch.Addr]bool
	calls, recorded, equal                int
	less, more, proved                    int
	inlinings                             map[livetest.Inlining]bool // proved
	framesRecorded, framesProved, unknown int
}

// few reports whether too little was seen for a verdict.
func (j *judge) few() bool { return j.calls < 30 || len(j.inlinings) == 0 }

// look takes the stacks of all managed threads, over and over.
func (j *judge) look(d time.Duration) {
	j.seen, j.inlinings = map[[2]arch.Addr]bool{}, map[livetest.Inlining]bool{}
	goOn := livetest.GoOn(d, j.few) // until the JIT has optimised code
	for ; goOn() && !j.Failed(); time.Sleep(5 * time.Millisecond) {
		threads, err := j.p.Threads()
		if err != nil {
			j.Fatal(err)
		}
		var calls []naming.Call
		for _, th := range threads {
			if th.ID == 0 {
				continue
			}
			s, err := j.p.Suspend(th.ID)
			if err != nil {
				continue // the thread has ended
			}
			_, all := clrsnap.Inside(bridge.Access{}).Suspension(s).Named()
			s.Release()
			for _, c := range all {
				if key := [2]arch.Addr{c.IP, c.Callee}; !j.seen[key] {
					j.seen[key] = true
					calls = append(calls, c)
				}
			}
		}
		j.s.Engine.Begin()
		for i := range calls {
			j.call(&calls[i])
		}
	}
}

// call compares the proof of one call with the tree.
func (j *judge) call(c *naming.Call) {
	recorded, has, err := j.s.Recorded(c)
	if err != nil || !has {
		return // precompiled in spite of the settings, or dynamic
	}
	proved, err := j.s.Proved(c)
	if err != nil {
		j.unknown++ // the JIT was adding to its record all the time
		return
	}
	j.calls++
	tree, err := j.s.Runtime.IL.Tree(&c.Code)
	if err != nil {
		j.Fatal(err)
	}
	of := j.name(inlining.Frame{Desc: c.Code.MethodDesc})
	for _, f := range proved {
		in := false
		for _, n := range tree.Nodes[1:] {
			d, _, err := j.s.Runtime.Inlined.Definition(n.Method)
			in = in || err == nil && d == f.Definition
		}
		if !in {
			j.Errorf("%s: %s is not in the tree of what was inlined", of, j.name(f))
		}
		if c.Code.Kind == codemap.JIT {
			j.inlinings[livetest.Inlining{Root: of, Inlinee: j.name(f)}] = true
		}
	}
	j.framesRecorded, j.framesProved = j.framesRecorded+len(recorded), j.framesProved+len(proved)
	if len(recorded) > 0 {
		j.recorded++
	}
	if len(proved) > 0 {
		j.proved++
	}
	less, more := within(proved, recorded), within(recorded, proved)
	switch {
	case less && more:
		j.equal++
	case less:
		j.less++
	case more: // a method inlined several times is certain, but not always which time
		j.more++
	default:
		j.Errorf("%s+%#x: proved %q, recorded %q", of, c.IP-c.Code.MethodStart, j.names(proved), j.names(recorded))
	}
}

// within reports whether all of a are in b, in the same order.
func within(a, b []inlining.Frame) bool {
	for _, f := range b {
		if len(a) > 0 && a[0].Definition == f.Definition {
			a = a[1:]
		}
	}
	return len(a) == 0
}

func (j *judge) name(f inlining.Frame) string {
	if f.Desc != 0 {
		m, err := j.s.Method(f.Desc)
		if err != nil {
			j.Fatal(err)
		}
		return m.Exact
	}
	m, err := j.s.Runtime.Names.Definition(f.Module, f.RID)
	if err != nil {
		j.Fatal(err)
	}
	return m.Exact
}

func (j *judge) names(frames []inlining.Frame) (out []string) {
	for _, f := range frames {
		out = append(out, j.name(f))
	}
	return out
}

// verdict compares with the events. Methods compiled before the program could listen have no event.
func (j *judge) verdict() {
	j.Logf("%d calls: %d with inlined methods by the tree, %d by proof (equal or none %d, less %d, more %d); "+
		"%d methods by the tree, %d by proof; %d times the record could not be read",
		j.calls, j.recorded, j.proved, j.equal, j.less, j.more, j.framesRecorded, j.framesProved, j.unknown)
	if j.few() || j.unknown > j.calls/20 {
		j.Errorf("%d calls, %d with a proof, %d unknown", j.calls, j.proved, j.unknown)
	}
	checked := 0
	livetest.Inlinings(j.T, j.list, func(events map[livetest.Inlining]bool) bool {
		compiled, missing := roots(events), 0
		checked = 0
		for in := range j.inlinings {
			switch {
			case events[in]:
				checked++
			case compiled[in.Root]:
				missing++
			}
		}
		return missing == 0
	})
	j.Logf("%d of %d proved pairs of methods are events of the JIT, no other had any", checked, len(j.inlinings))
	if checked == 0 {
		j.Error("no event compared")
	}
}

// roots returns the methods that have events.
func roots(events map[livetest.Inlining]bool) map[string]bool {
	out := map[string]bool{}
	for in := range events {
		out[in.Root] = true
	}
	return out
}
