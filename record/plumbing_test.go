package record_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// TestPlumbingOfWeb: between a pool thread and the code of a web service there are many framework
// frames of Kestrel and ASP.NET Core. They are one line, and one frame of a folded recording. After an
// await there are none. Recordings and JSON have all of them.
func TestPlumbingOfWeb(t *testing.T) {
	testenv.EachAspNet(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "web", testenv.Options{Runtime: runtime})
		p := livetest.Open(t, a, clrsnap.Options{})
		url := a.Ask("url")[0]
		// All but one of the first requests wait for preparations of ASP.NET, and go on without Kestrel's
		// frames.
		if r, err := http.Get(url + "/text"); err != nil || r.Body.Close() != nil {
			t.Fatal(err)
		}
		holdRequests(t, url+"/held", url+"/held/17")
		var snap *snapshot.Snapshot
		livetest.Await(t, "requests that are held", func() bool {
			var err error
			if snap, err = p.SnapshotAll(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			return len(held(snap)) == 2 && !slices.ContainsFunc(held(snap), spins)
		})
		for _, th := range held(snap) {
			checkHeld(t, &th)
		}
		testenv.UntilSeen(t, func() string {
			return checkFolded(t, livetest.Recorded(t, p, record.Options{
				Modes: []profile.Mode{profile.Wall}, Rate: 19, Duration: time.Second,
			}))
		})
	})
}

// holdRequests makes requests with answers at the end of the program.
func holdRequests(t *testing.T, urls ...string) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for _, url := range urls {
		rq, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if r, err := http.DefaultClient.Do(rq); err == nil {
				r.Body.Close()
			}
		}()
	}
}

const holds = "Web.Orders.Hold"

// held are the threads with held requests.
func held(s *snapshot.Snapshot) []snapshot.Thread {
	var out []snapshot.Thread
	for _, th := range s.Threads {
		if slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool { return f.Method == holds }) {
			out = append(out, th)
		}
	}
	return out
}

// spins reports whether a thread does not wait for the end of the program yet: the thread spins before
// its wait.
func spins(th snapshot.Thread) bool {
	return !slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool {
		return f.Method == "System.Threading.Monitor.Wait" || f.Method == "System.Threading.Condition.Wait" // .NET 11
	})
}

// checkHeld looks at the text of a thread.
func checkHeld(t *testing.T, th *snapshot.Thread) {
	t.Helper()
	var b strings.Builder
	if err := report.Text(&b, &snapshot.Snapshot{Threads: []snapshot.Thread{*th}}, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	isLater := func(f snapshot.Frame) bool { return strings.Contains(f.Method, "<HoldLater>") }
	later := slices.ContainsFunc(th.Frames, isLater)
	want := "[pool → Kestrel → ASP.NET: "
	if later {
		want = "[pool → tasks: "
	}
	at := strings.Index(text, want)
	if own := strings.Index(text, holds+"("); own < 0 || at < own ||
		!strings.Contains(text[:own], "ManualResetEventSlim.Wait") {
		t.Errorf("no %q after %s and its wait:\n%s", want, holds, text)
	}
	for _, none := range []string{"ThreadPoolWorkQueue", "Microsoft.AspNetCore.", "AsyncMethodBuilder"} {
		if strings.Contains(text, none) {
			t.Errorf("%s is shown:\n%s", none, text)
		}
	}
	for _, f := range snapshot.Folds(th.Frames) {
		if !later && strings.HasSuffix(f.Parts, "ASP.NET") && f.Frames < 8 {
			t.Errorf("only %d frames lead through %s", f.Frames, f.Parts)
		}
	}
}

// checkFolded compares a recording with its folded form.
func checkFolded(t *testing.T, r *profile.Recording) (missing string) {
	t.Helper()
	count := func(r *profile.Recording, name string) (n int) {
		for i := range r.Samples {
			if framesOf(r, &r.Samples[i], holds) == 0 {
				continue
			}
			for l := range r.Stack(r.Samples[i].Node) {
				if strings.Contains(r.Functions[l.Function].Display, name) {
					n++
				}
			}
		}
		return n
	}
	folded := r.FoldFramework()
	if folded.Weight(profile.Wall) != r.Weight(profile.Wall) {
		t.Errorf("it stands for %d ns, folded for %d", r.Weight(profile.Wall), folded.Weight(profile.Wall))
	}
	for _, all := range []string{"Microsoft.AspNetCore.Server.Kestrel.", "ThreadPoolWorkQueue.Dispatch"} {
		if count(r, all) == 0 {
			return all
		}
		if left := count(folded, all); left != 0 {
			t.Errorf("%d frames of %s when folded", left, all)
		}
	}
	for _, fold := range []string{"[pool → Kestrel → ASP.NET]", "[pool → tasks]"} {
		if count(folded, fold) == 0 {
			return fold
		}
	}
	return ""
}
