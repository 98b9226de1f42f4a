package ordeal

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"
)

// all asks for everything, and more than the reader's ring has room for.
var all = events.Options{Monitor: events.MonitorAll, AllocationBytes: 1, MaxFrames: 100, RingBytes: 64 << 10}

// The readers say "now" when the moment has come to kill them.
var (
	attaching = role.New("attaching", func(a role.Args) error {
		fmt.Println("now")
		return ordealRead(a.Int(0), all, nil)
	})
	reading = role.New("reading", func(a role.Args) error {
		said := false
		return ordealRead(a.Int(0), all, func(*events.Subscription, *events.Notification) error {
			if !said {
				said = true
				fmt.Println("now")
			}
			return nil
		})
	})
	holding = role.New("holding", func(a role.Args) error {
		held := all
		held.Hold = 10 * time.Second
		return ordealRead(a.Int(0), held, func(_ *events.Subscription, n *events.Notification) error {
			if n.Held { // never released
				fmt.Println("now")
			}
			return nil
		})
	})
	detaching = role.New("detaching", func(a role.Args) error {
		return ordealRead(a.Int(0), all, func(s *events.Subscription, _ *events.Notification) error {
			fmt.Println("now")
			if err := s.Close(); err != nil {
				return err
			}
			select {} // until the test kills the reader
		})
	})
	counting = role.New("counting", func(a role.Args) error {
		taken := 0
		return ordealRead(a.Int(0), all, func(s *events.Subscription, n *events.Notification) error {
			if n.Event != events.ExceptionThrown {
				return nil
			}
			taken++
			stats := s.Stats(events.ExceptionThrown)
			_, err := fmt.Println(taken, stats.Seen, stats.Published, stats.Dropped)
			return err
		})
	})
)

func TestMain(m *testing.M) { role.Main(m) }

// ordealRead subscribes to a process and takes its notifications for good.
func ordealRead(pid int, o events.Options, use func(*events.Subscription, *events.Notification) error) error {
	p, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{})
	if err != nil {
		return err
	}
	s, err := events.Subscribe(context.Background(), p, o)
	if err != nil {
		return err
	}
	for {
		n, err := s.Next(context.Background())
		if err != nil {
			return err
		}
		if use == nil {
			continue
		}
		if err := use(s, n); err != nil {
			return err
		}
	}
}

// eventReader is a process that reads notifications.
type eventReader struct {
	*exec.Cmd
	lines *bufio.Scanner
}

func startEventReader(t *testing.T, what *role.Role, pid int) *eventReader {
	t.Helper()
	r := &eventReader{Cmd: what.Command(pid)}
	out, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.ProcessState == nil {
			r.Process.Kill()
			r.Wait()
		}
	})
	r.lines = bufio.NewScanner(out)
	return r
}

// line is the reader's next line.
func (r *eventReader) line(t *testing.T) string {
	t.Helper()
	late := time.AfterFunc(ordealLimit, func() { r.Process.Kill() })
	if r.lines.Scan(); !late.Stop() {
		t.Fatal("the reader says nothing any more")
	}
	return r.lines.Text()
}

// kill ends the reader, and returns the rest of its output.
func (r *eventReader) kill() string {
	r.Process.Kill()
	var rest strings.Builder
	for r.lines.Scan() {
		rest.WriteString(r.lines.Text())
	}
	r.Wait()
	return rest.String()
}

// TestOrdealReaderKilled kills readers at random moments: while they attach, read,
// keep a thread standing, detach. The program goes on, the next reader can attach,
// and nothing is left behind.
func TestOrdealReaderKilled(t *testing.T) {
	layer.Quiet(t)
	phases := []struct {
		role   *role.Role
		within time.Duration // of "now"
	}{
		{attaching, 250 * time.Millisecond},
		{reading, 50 * time.Millisecond},
		{holding, 50 * time.Millisecond},
		{detaching, 500 * time.Millisecond},
	}
	dir := t.TempDir()
	a := testenv.Start(t, "ordeal", testenv.Options{
		Args: []string{"--mode", "all", "--max-seconds", "3600"}, Env: []string{"TMPDIR=" + dir},
	})
	p := livetest.Open(t, a, clrsnap.Options{})
	for range layer.Size(3, 25) {
		for _, phase := range phases {
			r := startEventReader(t, phase.role, a.PID)
			if said := r.line(t); said != "now" {
				t.Fatalf("%s: %q", phase.role, said)
			}
			time.Sleep(rand.N(phase.within)) // the random moment
			if rest := strings.ReplaceAll(r.kill(), "now", ""); rest != "" {
				t.Errorf("%s: %q", phase.role, rest)
			}
		}
		notifies(t, p)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".clrsnap-*")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %q, %v", left, err)
	}
	livetest.Untraced(t, a.PID)
	livetest.EndsWell(t, a)
}

// notifies requires that a program with constant events of every kind accepts a
// subscription, and reports each kind of event.
func notifies(t *testing.T, p *clrsnap.Process) {
	t.Helper()
	o := &ordeal{
		sub:    subscribeOrdeal(t, p, events.Options{Monitor: events.MonitorAll}),
		stderr: func() string { return "" }, // the test's end shows it
	}
	missing := map[events.Event]bool{}
	for e := events.ObjectAllocated; e <= events.RuntimeResumeFinished; e++ {
		missing[e] = true
	}
	o.take(t, func(n *events.Notification) bool {
		delete(missing, n.Event)
		return len(missing) > 0
	})
	o.close(t)
}

// TestOrdealReattach attaches and detaches again and again. Each time works, and
// the program has no more threads, files and memory afterwards.
func TestOrdealReattach(t *testing.T) {
	layer.Quiet(t)
	times := layer.Size(10, 100)
	a := testenv.Start(t, "ordeal", testenv.Options{Args: []string{"--mode", "all", "--max-seconds", "3600"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	var early resources
	for i := range times {
		notifies(t, p)
		if i == times/5 {
			early = resourcesOf(t, a.PID)
		}
	}
	late := resourcesOf(t, a.PID)
	t.Logf("after %d times %+v, after %d %+v", times/5+1, early, times, late)
	// Normal variation: the program's own threads, stacks, heap.
	if late.files > early.files+4 || late.mappings > early.mappings+60 || late.ofAgent > early.ofAgent ||
		late.threads > early.threads+12 || late.memory > early.memory+64<<10 {
		t.Errorf("it has grown")
	}
	if late.agents != 0 {
		t.Errorf("%d threads of the agent are left", late.agents)
	}
	livetest.EndsWell(t, a)
}

// resources are what a process has.
type resources struct {
	files, threads, mappings int
	agents                   int // threads of the agent
	ofAgent                  int // mappings of the agent's library
	memory                   int // private memory, in KB
}

func resourcesOf(t *testing.T, pid int) (r resources) {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	r.files = len(files)
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	r.threads = len(names)
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && string(b) == "clrsnap-agent\n" {
			r.agents++
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		r.mappings++
		if strings.Contains(line, "libclrsnap-agent") {
			r.ofAgent++
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rss, _ := strings.Cut(string(status), "RssAnon:")
	if _, err := fmt.Sscan(rss, &r.memory); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOrdealReaderStopped stops a reader until its ring is full. The program does not
// wait for the reader: it throws as much as before, and notifications without room
// are counted. Afterwards notifications come again.
func TestOrdealReaderStopped(t *testing.T) {
	layer.Quiet(t)
	a := testenv.Start(t, "events", testenv.Options{Args: []string{"--kinds", "exception", "--max-seconds", "600"}})
	r := startEventReader(t, counting, a.PID)
	for range layer.Size(2, 20) {
		before := r.counts(t)
		signal(t, r, syscall.SIGSTOP)
		// More than fits into the ring, at less than 100 bytes for each.
		const more = 2000
		from := thrown(a)
		for end := time.Now().Add(ordealLimit); thrown(a) < from+more; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the program waits for its reader: it has thrown %d exceptions", thrown(a)-from)
			}
		}
		signal(t, r, syscall.SIGCONT)
		after := r.counts(t)
		for after.seen < before.seen+more {
			after = r.counts(t)
		}
		if after.dropped == before.dropped {
			t.Errorf("nothing was dropped: %+v, then %+v", before, after)
		}
		again := r.counts(t)
		for again.taken < after.taken+1000 {
			again = r.counts(t)
		}
		t.Logf("%+v before, %+v after, %+v later", before, after, again)
		if again.published+again.dropped > again.seen {
			t.Errorf("%+v", again)
		}
	}
	r.kill()
	livetest.EndsWell(t, a)
}

// exceptionCounts are a reader's counts of exceptions.
type exceptionCounts struct{ taken, seen, published, dropped int }

func (r *eventReader) counts(t *testing.T) (c exceptionCounts) {
	t.Helper()
	line := r.line(t)
	if _, err := fmt.Sscan(line, &c.taken, &c.seen, &c.published, &c.dropped); err != nil {
		t.Fatalf("the reader says %q: %v", line, err)
	}
	return c
}

// thrown is the number of exceptions that the program events has thrown.
func thrown(a *testenv.App) (n int64) {
	_, truths := a.AskTruths()
	for _, x := range truths {
		if x.Kind == "exception" { // a rethrow is not reported
			n += x.Count
		}
	}
	return n
}

func signal(t *testing.T, r *eventReader, s syscall.Signal) {
	t.Helper()
	if err := r.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
