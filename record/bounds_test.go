package record

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/perfevent"
	"clrsnap/internal/session"
	"clrsnap/profile"
)

// TestThreadTable: threads beyond the bound share numbers by their names, and names have a bound too.
// Threads with their own numbers can be renamed, threads with shared numbers cannot.
func TestThreadTable(t *testing.T) {
	b := profile.NewBuilder(profile.Limits{})
	tt := threadTable{b: b}
	for i := range int32(maxThreadsApart) {
		if got := tt.add(profile.RecordedThread{OSThreadID: 1, Name: "same"}); got != i {
			t.Fatalf("thread %d has the number %d", i, got)
		}
	}
	pool := profile.RecordedThread{OSThreadID: 5000, ManagedThreadID: 7, Name: "pool", Role: "ThreadPool worker"}
	shared := tt.add(pool)
	pool.OSThreadID, pool.ManagedThreadID = 5001, 8
	if got := tt.add(pool); got != shared || shared != maxThreadsApart {
		t.Errorf("two more of one name have the numbers %d and %d", shared, got)
	}
	pool.Process = 1
	if got := tt.add(pool); got == shared {
		t.Errorf("threads of two processes share number %d", got)
	}
	tt.rename(0, profile.RecordedThread{OSThreadID: 1, Name: "new"})
	tt.rename(shared, profile.RecordedThread{OSThreadID: 9, Name: "new"})
	for i := range 10 * maxThreadNames {
		tt.add(profile.RecordedThread{OSThreadID: i, Name: fmt.Sprint("name ", i)})
	}
	threads := b.Recording().Threads
	first, common := threads[0], threads[shared]
	if first.Name != "new" || common != (profile.RecordedThread{Name: "pool", Role: "ThreadPool worker"}) {
		t.Errorf("after renaming: %+v, %+v", first, common)
	}
	if n := len(threads) - maxThreadsApart; n > maxThreadNames+1 {
		t.Errorf("%d numbers are shared", n)
	}
	last := threads[tt.add(profile.RecordedThread{Name: "one more"})]
	if last != (profile.RecordedThread{Name: "other threads"}) {
		t.Errorf("whoever comes last is among %+v", last)
	}
}

// TestStackSize: the size grows, up to the maximum, when one stack in two hundred is larger, and not
// before that is certain.
func TestStackSize(t *testing.T) {
	s := stackSize{bytes: firstStackCopy}
	add := func(samples, depth int) int {
		for range samples {
			s.note(depth, depth > s.bytes)
		}
		return s.next()
	}
	steps := []struct {
		what           string
		samples, depth int
		want           int
	}{
		{"too few to tell", 199, 1 << 20, 0},
		{"deeper than what can be copied", 1, 1 << 20, perfevent.MaxStackBytes},
		{"never smaller again", 2000, 100, 0},
	}
	for _, c := range steps {
		if n := add(c.samples, c.depth); n != c.want || n > 0 && s.bytes != n {
			t.Errorf("%s: %d, %d bytes, want %d", c.what, n, s.bytes, c.want)
		}
	}

	s = stackSize{bytes: firstStackCopy}
	for _, c := range []struct {
		what           string
		samples, depth int
		want           int
	}{
		{"not sure yet", 900, 5 << 10, 0},
		{"one in a thousand is deep", 1, 20 << 10, 0},
		{"8 KB do", 99, 100, 8 << 10},
		{"one in 250 is deeper", 249, 5 << 10, 0},
		{"one in 250 is deeper", 1, 20 << 10, 0},
		{"two in 251", 1, 20 << 10, 32 << 10},
		{"not again", 5000, 100, 0},
	} {
		if n := add(c.samples, c.depth); n != c.want || n > 0 && s.bytes != n {
			t.Errorf("%s: %d, %d bytes, want %d", c.what, n, s.bytes, c.want)
		}
	}
}

// TestHeldSamples: held samples are copies and are bounded. For want of room, the process with the
// most samples loses its samples.
func TestHeldSamples(t *testing.T) {
	var h heldSamples
	stack, kernel := make([]byte, 1<<20), []uint64{1, 2}
	keep := func(pid, n int) {
		for range n {
			h.keep(&perfevent.Record{PID: pid, Stack: stack, Kernel: kernel})
		}
	}
	stack[0] = 42
	keep(1, 3)
	stack[0], kernel[0] = 0, 0 // the buffer is used again
	for i := range 1000 {
		keep(2, 1)
		if h.bytes > maxHeld {
			t.Fatalf("%d bytes after %d samples", h.bytes, i)
		}
	}
	got, lost := h.take(1)
	if len(got) != 3 || lost != 0 || got[0].Stack[0] != 42 || got[0].Kernel[0] != 1 {
		t.Errorf("of a process with few samples %d are there and %d lost", len(got), lost)
	}
	got, lost = h.take(2)
	if len(got) == 0 || len(got)+lost != 1000 {
		t.Errorf("of a process with a thousand samples %d are there and %d lost", len(got), lost)
	}
	if again, _ := h.take(2); h.bytes != 0 || len(h.of) != 0 || len(again) != 0 {
		t.Errorf("%d bytes of %d processes are left", h.bytes, len(h.of))
	}
}

// TestBirthsBounded: a program that reports threads without end does not fill our memory, and the
// recording admits its gaps.
func TestBirthsBounded(t *testing.T) {
	r := newRecorder(Options{Events: events.Options{Monitor: events.MonitorThreads}})
	defer r.close()
	np := &notifiedProcess{e: r.events, births: map[clrsnap.ThreadID]time.Duration{}}
	const more = 10
	notify := func(e events.Event, id clrsnap.ThreadID, at time.Duration) {
		np.notified(&notification{Notification: &events.Notification{Event: e, Other: id, At: at}})
	}
	for i := range clrsnap.ThreadID(maxLives + more) {
		notify(events.ThreadCreated, i+1, 1)
	}
	notify(events.ThreadCreated, 1, 2) // known already
	if len(np.births) != maxLives || r.events.lives.created != maxLives+more+1 || r.events.lives.unknown != more {
		t.Errorf("%d births are known, %+v", len(np.births), r.events.lives)
	}
	for i := range clrsnap.ThreadID(maxLives + more) {
		notify(events.ThreadDestroyed, i+1, 3)
	}
	if len(np.births) != 0 || len(r.events.lives.known) != maxLives || r.events.lives.ended != maxLives+more {
		t.Errorf("%d births are known, %+v", len(np.births), r.events.lives.ended)
	}
	notes := r.events.remarks()
	want := fmt.Sprintf("How long %d of them lived was not recorded", more)
	if len(notes) != 1 || !strings.Contains(notes[0], want) {
		t.Errorf("%q", notes)
	}
}

// TestEndedThreadsBounded: nor does a program that reports samples of threads that do not exist.
func TestEndedThreadsBounded(t *testing.T) {
	r := newRecorder(Options{})
	p, err := session.Open(t.Context(), os.Getpid(), session.Options{NativeOnly: true})
	if err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
	}
	defer p.Close()
	rp := r.add(p)
	for i := range maxThreadIDs + 10 {
		if th := rp.thread(1<<23+i, "x"); !th.ended {
			t.Fatalf("thread %d is there", th.info.OSThreadID)
		}
	}
	if n := len(rp.threads); n > maxThreadIDs {
		t.Errorf("%d threads that have ended are known", n)
	}
}
