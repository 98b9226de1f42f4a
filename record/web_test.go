package record_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// TestRecordWeb records a web server on Kestrel under load: the server's own methods and Kestrel's are
// there, named, with stacks that reach the base of their threads, and stand for the used CPU time.
func TestRecordWeb(t *testing.T) {
	testenv.EachAspNet(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "web", testenv.Options{Runtime: runtime})
		p := livetest.Open(t, a, clrsnap.Options{})
		defer livetest.Visit(t, a)()
		for _, modes := range [][]profile.Mode{{profile.CPU}, both} {
			ctx, end := context.WithTimeout(t.Context(), livetest.Hang)
			defer end()
			before, used := livetest.StolenCPU(t), livetest.CPU(t, a.PID)
			r, err := record.Record(ctx, p, record.Options{
				Modes: modes, Rate: 199, Progress: func(record.Progress) {
					if livetest.CPU(t, a.PID)-used > 1500*time.Millisecond {
						end() // there are samples enough
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			checkWeb(t, r, livetest.StolenCPU(t)-before)
		}
	})
}

// webStack is the way of a request to the code that prices orders, leaf first: by a continuation after
// an await, on a thread of the pool.
var webStack = []string{
	"Web.Orders.Price",
	"Web.Orders+<Load>d__6.MoveNext",
	"System.Threading.ThreadPoolWorkQueue.Dispatch",
	"System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart",
}

// checkWeb compares the samples with the used time. stolen is the time that other machines took away
// meanwhile.
func checkWeb(t *testing.T, r *profile.Recording, stolen time.Duration) {
	t.Helper()
	priced, kestrel := time.Duration(0), time.Duration(0)
	unknown := 0 // in code first met after the collector has run: other code may have been there before
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != profile.CPU || x.Incomplete {
			continue
		}
		names, ofKestrel := managedStack(t, r, x)
		if slices.Contains(names, "") {
			unknown++
		}
		if ofKestrel {
			kestrel += time.Duration(x.Weight)
		}
		if framesOf(r, x, webStack[0]) == 0 {
			continue
		}
		priced += time.Duration(x.Weight)
		if !inOrder(names, webStack) {
			t.Errorf("%v:\n\t%s\nhas not, in this order,\n\t%s", x.At, strings.Join(names, "\n\t"),
				strings.Join(webStack, "\n\t"))
		}
	}
	if unknown > 5+len(r.Samples)/100 { // some at the beginning, however short
		t.Errorf("%d of %d samples have unknown code", unknown, len(r.Samples))
	}
	cpu := time.Duration(r.Weight(profile.CPU))
	t.Logf("%v CPU time of %v, %v in Kestrel, %v in prices, %v in incomplete stacks",
		cpu, r.Cost.TargetCPU, kestrel, priced, incomplete(r))
	if priced == 0 || kestrel < cpu/20 || incomplete(r) > cpu/20 ||
		(cpu-r.Cost.TargetCPU).Abs() > r.Cost.TargetCPU/20+livetest.ByChance(r.Cost.TargetCPU)+stolen {
		t.Errorf("samples stand for %v of %v, other machines took %v: "+
			"%v in prices, %v in Kestrel, %v in incomplete stacks",
			cpu, r.Cost.TargetCPU, stolen, priced, kestrel, incomplete(r))
	}
	if _, ok := r.Mode(profile.Wall); !ok {
		return
	}
	if waits := spentIn(r, profile.Wall, "Common.App.WaitForEnd")[0]; waits < r.Duration/2 || waits > r.Duration*11/10 {
		t.Errorf("the thread that waits for the end does so for %v of %v", waits, r.Duration)
	}
}

// managedStack are the names of a sample's managed frames, leaf first, and whether a frame is
// Kestrel's. Every frame must have a name, or be unknown code.
func managedStack(t *testing.T, r *profile.Recording, x *profile.Sample) (names []string, kestrel bool) {
	t.Helper()
	for l := range r.Stack(x.Node) {
		f := &r.Functions[l.Function]
		if f.Kind != snapshot.Managed {
			continue
		}
		if f.Method == "" && f.Display != profile.UnknownCode {
			t.Errorf("%v: a frame in %s has no name", x.At, f.Module)
		}
		names = append(names, f.Method)
		kestrel = kestrel || strings.HasPrefix(f.Method, "Microsoft.AspNetCore.Server.Kestrel.")
	}
	return names, kestrel
}

// inOrder reports whether all has the wanted names in order, with others in between.
func inOrder(all, wanted []string) bool {
	for _, w := range wanted {
		i := slices.Index(all, w)
		if i < 0 {
			return false
		}
		all = all[i+1:]
	}
	return true
}
