package matrix

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"clrsnap"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestNativeAOTDeadlock finds the deadlock of two threads of a native AOT program, and the thread behind the two: in
// the running program, and in a core dump.
func TestNativeAOTDeadlock(t *testing.T) {
	pid, _ := testenv.StartAheadOfTimeNewest(t, testenv.AheadOfTimeDeadlocked(t), "600")
	p, err := clrsnap.Open(t.Context(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	testenv.UntilSeen(t, func() string {
		return faultOfDeadlock(snapshotWaits(t, p))
	})
	dead := openCore(t, testenv.GCoreDump(t, pid), clrsnap.CoreOptions{})
	defer dead.Close()
	if fault := faultOfDeadlock(snapshotWaits(t, dead)); fault != "" {
		t.Errorf("core dump: %s", fault)
	}
}

// faultOfDeadlock says how the deadlocks differ from the deadlock of the program; "": not at all.
func faultOfDeadlock(s *snapshot.Snapshot) string {
	g := s.WaitGraph()
	if len(g.Deadlocks) != 1 {
		return "there is no single deadlock"
	}
	names := func(threads []int) (out []string) {
		for _, i := range threads {
			out = append(out, s.Threads[i].Name)
		}
		slices.Sort(out)
		return out
	}
	d := &g.Deadlocks[0]
	switch members, victims := names(d.Threads), names(d.Victims); {
	case !slices.Equal(members, []string{"holder", "waiter"}) || !slices.Equal(victims, []string{"wanter"}):
		return fmt.Sprintf("%v wait in the circle, and %v behind", members, victims)
	case !d.Certain || !d.Simple || d.Ended || d.Timeout != snapshot.Forever:
		return fmt.Sprintf("the deadlock is %+v", d)
	}
	for n, i := range d.Threads {
		other := &s.Threads[d.Threads[1-n]]
		w, holds := s.Threads[i].Wait, s.Threads[i].Holds
		if w == nil || w.Kind != snapshot.MonitorEnter || w.Owner == nil || w.Owner.OSThreadID != other.OSThreadID ||
			len(holds) != 1 || !holds[0].Certain || len(other.Holds) != 1 || w.Object != other.Holds[0].Object ||
			w.Object == holds[0].Object {
			return fmt.Sprintf("%s waits for %+v, holds %+v", s.Threads[i].Name, w, holds)
		}
	}
	return ""
}

// TestNativeAOTFailed finds the failed tasks of two async methods, with the exception. The outer method awaits the
// inner method, and nobody awaits the outer method.
func TestNativeAOTFailed(t *testing.T) {
	pid, said := testenv.StartAheadOfTimeNewest(t, testenv.AheadOfTimeFailed(t))
	if !slices.Contains(said, "pending task Outer < Inner: Faulted") {
		t.Fatalf("the program says %q", said)
	}
	p, err := clrsnap.Open(t.Context(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	checkFailed(t, p)
	dead := openCore(t, testenv.GCoreDump(t, pid), clrsnap.CoreOptions{})
	defer dead.Close()
	checkFailed(t, dead)
}

// checkFailed requires the failed tasks of the methods Inner and Outer. Neither method has been suspended.
func checkFailed(t *testing.T, p *clrsnap.Process) {
	t.Helper()
	tasks, err := p.Tasks(t.Context(), clrsnap.TasksOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks.Faults) != 2 || len(tasks.Chains) > 0 || tasks.Partial || tasks.Unproven+tasks.Unread > 0 {
		t.Fatalf("%+v", tasks)
	}
	for i, f := range tasks.Faults {
		methods := shownMethods(f.Exception)
		want := []string{"Hello.Program.Inner{async}", "Hello.Program.Outer{async}"}
		if f.Count != 1 || f.Observed != (i == 1) || f.Service != "" || f.Object == 0 || f.Method != want[1] ||
			f.Exception.Type != "System.NullReferenceException" || f.Exception.Message == "" ||
			f.Exception.Uncertain != "" || !slices.Equal(methods, want) {
			t.Errorf("%d × %s, observed: %v: %+v, %q", f.Count, f.Method, f.Observed, f.Exception.Type, methods)
		}
	}
}

// shownMethods returns the methods of a stack trace as .NET prints.
func shownMethods(e *snapshot.ExceptionInfo) (out []string) {
	for _, f := range e.Frames {
		if !f.Hidden {
			out = append(out, f.Display)
		}
	}
	return out
}

// TestNativeAOTFailedRequests finds the failed tasks of a web service with requests that could not be served.
func TestNativeAOTFailedRequests(t *testing.T) {
	c := newAheadClient(t)
	const requests = 3
	for range requests {
		answer, err := c.http.Get(c.url + "/async/-5") // Later waits for a time below zero
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusInternalServerError {
			t.Fatalf("the service says %s", answer.Status)
		}
	}
	tasks, err := c.process.Tasks(t.Context(), clrsnap.TasksOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks.Faults) != 1 {
		t.Fatalf("%+v", tasks.Faults)
	}
	const lambda = "Slim.Program.Main{lambda 5_2}{async}"
	f := tasks.Faults[0] // of Later and of the lambda
	methods := shownMethods(f.Exception)
	if f.Count != 2*requests || !f.Observed || f.Exception.Type != "System.ArgumentOutOfRangeException" ||
		f.Method != lambda || len(methods) < 3 || methods[1] != "Slim.Program.Later{async}" || methods[2] != lambda {
		t.Errorf("%+v: %q", f, methods)
	}
}

// TestNativeAOTReaders finds the threads that hold a ReaderWriterLockSlim to read, while another thread waits to write:
// in the running program, and in a core dump.
func TestNativeAOTReaders(t *testing.T) {
	c := newAheadClientOf(t, testenv.AheadOfTimeReaders(t))
	const readers = 2
	for range readers {
		c.ask(t, "/wait/600000", "")
	}
	testenv.UntilSeen(t, func() string {
		if len(inside(snapshotWaits(t, c.process), snapshot.ThreadSleep)) < readers {
			return "threads that read"
		}
		return ""
	})
	c.ask(t, "/wait/600001", "")
	testenv.UntilSeen(t, func() string { return faultOfReaders(snapshotWaits(t, c.process), readers) })
	dead := openCore(t, testenv.GCoreDump(t, c.pid), clrsnap.CoreOptions{})
	defer dead.Close()
	if fault := faultOfReaders(snapshotWaits(t, dead), readers); fault != "" {
		t.Errorf("core dump: %s", fault)
	}
}

func snapshotWaits(t *testing.T, p *clrsnap.Process) *snapshot.Snapshot {
	t.Helper()
	s, err := p.SnapshotWaits(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inside returns the threads in the method BlockFor with a kind of wait.
func inside(s *snapshot.Snapshot, kind snapshot.WaitKind) (out []*snapshot.Thread) {
	for i := range s.Threads {
		th := &s.Threads[i]
		if th.Wait != nil && th.Wait.Kind == kind && slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool {
			return f.Method == "Slim.Program.BlockFor"
		}) {
			out = append(out, th)
		}
	}
	return out
}

// faultOfReaders says how the readers of the lock differ from the sleeping threads; "": not at all.
func faultOfReaders(s *snapshot.Snapshot, readers int) string {
	reading, writing := inside(s, snapshot.ThreadSleep), inside(s, snapshot.WriteLock)
	if len(reading) != readers || len(writing) != 1 {
		return fmt.Sprintf("%d threads sleep, and %d wait to write", len(reading), len(writing))
	}
	var want []int
	for _, th := range reading {
		want = append(want, th.OSThreadID)
	}
	var got []int
	w := writing[0].Wait
	for _, r := range w.Readers {
		got = append(got, r.OSThreadID)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || w.Type != "System.Threading.ReaderWriterLockSlim" || w.Owner != nil {
		return fmt.Sprintf("%v read, not %v: %+v", got, want, w)
	}
	return ""
}
