package perfevent

import (
	"math"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"
)

// TestSetStackBytes: the copy size changes while threads run; nothing is counted twice, and
// little is missing.
func TestSetStackBytes(t *testing.T) {
	layer.Live(t)
	eachScope(t, testSetStackBytes)
}

func testSetStackBytes(t *testing.T, scope Scope) {
	const period = time.Millisecond / 4
	p := start(t, "2m")
	tid, _ := p.burner()
	deep := p.number("magic")
	used := usage{pid: p.pid, tids: []int{tid}}
	used.note(t)
	e := open(t, Options{PID: p.pid, Period: period, StackBytes: 1024, BufferBytes: roomy, Scope: scope})
	used.note(t)
	samples, last, disorder := 0, time.Duration(0), 0
	size, sized := 0, 0 // the greatest copy of the deep thread's stack, and the number of copies
	visit := func(r *Record) {
		if r.Kind != Sampled {
			return
		}
		if r.Time < last {
			disorder++
		}
		last = r.Time
		if r.TID == tid {
			samples++
		}
		if r.TID == deep && (size > 0 || isSet(r)) {
			checkMagic(t, r, 3000)
			if len(r.Stack) > size {
				size, sized = len(r.Stack), 0
			} else if len(r.Stack) < size {
				t.Errorf("a copy of %d bytes after one of %d", len(r.Stack), size)
			}
			sized++
		}
	}
	const switches = 4
	for _, n := range []int{1024, 2048, 4096, 8192, 16384} {
		if n > 1024 {
			if err := e.SetStackBytes(n); err != nil {
				t.Fatal(err)
			}
		}
		if e.StackBytes() != n {
			t.Errorf("%d bytes instead of %d", e.StackBytes(), n)
		}
		readUntil(t, e, visit, func() bool { return size == n && sized >= 300 })
	}
	used.note(t)
	if err := e.Stop(visit); err != nil {
		t.Fatal(err)
	}
	used.note(t)
	if disorder > 6 { // as in testShares
		t.Errorf("%d of %d records are older than one before them", disorder, e.Stats().Samples)
	}
	// At each switch, a period on each CPU can be missing.
	used.check(t, 0, samples, period, float64(switches*len(e.rings)))
	for _, n := range []int{0, -8, 12, 1 << 16} {
		if e.SetStackBytes(n) == nil {
			t.Errorf("%d bytes were accepted", n)
		}
	}
}

// TestOverflow: records without room in the rings are counted exactly.
func TestOverflow(t *testing.T) {
	layer.Live(t)
	eachScope(t, testOverflow)
}

func testOverflow(t *testing.T, scope Scope) {
	const period = time.Millisecond / 4
	p := start(t, "22")
	tid1, _ := p.burner()
	tid2, _ := p.burner()
	used := usage{pid: p.pid, tids: []int{tid1, tid2}}
	used.note(t)
	e := open(t, Options{PID: p.pid, Period: period, StackBytes: MaxStackBytes, BufferBytes: minRing, Scope: scope})
	used.note(t)
	samples, lost := 0, 0
	visit := func(r *Record) {
		switch r.Kind {
		case Sampled:
			samples++
		case Lost:
			lost += r.Lost
		}
	}
	for end := time.Now().Add(hang); cpuTime(t, p.pid, tid1)-used.notes[0][0].time < time.Second/4; {
		if time.Now().After(end) {
			t.Fatal("the target does not run")
		}
		time.Sleep(10 * time.Millisecond)
	}
	readUntil(t, e, visit, func() bool { return lost > 0 })
	time.Sleep(100 * time.Millisecond)
	used.note(t)
	if err := e.Stop(visit); err != nil {
		t.Fatal(err)
	}
	used.note(t)
	if lost < samples || lost != e.Stats().Lost || samples != e.Stats().Samples {
		t.Errorf("%d samples, %d lost: %+v", samples, lost, e.Stats())
	}
	if !e.attr.formatLost {
		t.Skip("the sum was not tested: this kernel reports no losses at the end (Linux 6.0 does)")
	}
	least1, most1 := used.bounds(0, period)
	least2, most2 := used.bounds(1, period)
	if scope == Unfiltered {
		most1 = math.Inf(1) // samples of all other programs are lost, too
	}
	if got := float64(samples + lost); got < least1+least2 || got > most1+most2 {
		t.Errorf("%d samples and %d lost ones: %+v", samples, lost, used.notes)
	}
}

// TestClose: the target goes on, with and without Stop, and other events too.
func TestClose(t *testing.T) {
	layer.Live(t)
	eachScope(t, testClose)
}

func testClose(t *testing.T, scope Scope) {
	p := start(t, "2")
	tid, _ := p.burner()
	for range 20 {
		e := open(t, Options{PID: p.pid, Period: 100 * time.Microsecond, Scope: scope})
		time.Sleep(5 * time.Millisecond)
		e.Close()
		e.Close()
		if err := e.Read(func(*Record) { t.Error("a record after Close") }); err == nil {
			t.Error("a read after Close")
		}
		if _, err := e.Wait(0); err == nil {
			t.Error("a wait after Close")
		}
	}
	before := cpuTime(t, p.pid, tid)
	for end := time.Now().Add(hang); cpuTime(t, p.pid, tid)-before < 50*time.Millisecond; {
		if time.Now().After(end) {
			t.Fatal("the target does not run any more")
		}
		time.Sleep(time.Millisecond)
	}
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}
