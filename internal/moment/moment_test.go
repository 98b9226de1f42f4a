package moment

import (
	"errors"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// program is a process with one word of memory, and with a collector.
type program struct {
	word   byte
	moving bool
	epoch  Epoch
	begun  Epoch
	ran    map[int]bool
	stood  map[int]bool
}

func (p *program) ReadMemory(b []byte, at arch.Addr) error {
	if at != 0x1000 {
		return &target.ReadError{Addr: at, Len: len(b)}
	}
	b[0] = p.word
	return nil
}

func (p *program) Holds(tid int, proof target.Proof) bool { return proof != "" && !p.ran[tid] }

func (p *program) StillBlocked(tid int) (bool, time.Duration) { return p.stood[tid], 0 }

func (p *program) Settled(target.Memory) bool { return !p.moving }

func (p *program) Known() bool { return true }

func (p *program) Stamp(target.Memory) Epoch {
	if p.moving {
		return 0
	}
	return p.epoch
}

func (p *program) Begun() Epoch { return p.begun }

func reader(p *program) (r *Reader, forgotten *int) {
	forgotten = new(int)
	return &Reader{
		Running: p, Collector: p, Seen: target.NewEvidence(p), Forget: func() { *forgotten++ },
	}, forgotten
}

// TestRead: a read counts if memory and objects stay as they are until the end, and is repeated otherwise.
func TestRead(t *testing.T) {
	for name, tt := range map[string]struct {
		during func(p *program, read int) error // happens after the word was read
		valid  func(read int) bool
		ok     bool
		reads  int
	}{
		"quiet": {ok: true, reads: 1},
		"changed once": {
			during: func(p *program, n int) error { p.word += 1 - byte(n/2); return nil }, ok: true, reads: 2,
		},
		"changing":   {during: func(p *program, _ int) error { p.word++; return nil }, reads: tries},
		"moved once": {during: func(p *program, n int) error { p.moving = n == 1; return nil }, ok: true, reads: 3},
		"moving":     {during: func(p *program, _ int) error { p.moving = true; return nil }, reads: tries},
		"failed once": {
			during: func(_ *program, n int) error { return map[int]error{1: errors.New("torn")}[n] }, ok: true,
			reads: 2,
		},
		"over before":    {valid: func(int) bool { return false }},
		"over meanwhile": {valid: func(n int) bool { return n == 0 }, reads: 1},
	} {
		p := &program{}
		r, forgotten := reader(p)
		reads := 0
		ok := r.Read(func() error {
			reads++
			var b [1]byte
			if err := r.Seen.ReadMemory(b[:], 0x1000); err != nil {
				return err
			}
			if tt.during != nil {
				return tt.during(p, reads)
			}
			return nil
		}, func() bool { return tt.valid == nil || tt.valid(reads) })
		if ok != tt.ok || reads != tt.reads {
			t.Errorf("%s: %v after %d reads, want %v after %d", name, ok, reads, tt.ok, tt.reads)
		}
		if tt.valid == nil && *forgotten < reads-1 {
			t.Errorf("%s: %d reads, but what was remembered was forgotten %d times", name, reads, *forgotten)
		}
	}
}

// TestTwice: a result counts if the next result is equal, and objects stay in their places.
func TestTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		results []int // the last one again and again
		before  bool  // objects are moved before the first read
		moves   int   // objects are moved during so many reads
		want    int
		ok      bool
		reads   int
	}{
		"equal":        {[]int{5}, false, 0, 5, true, 2},
		"later":        {[]int{1, 2, 3}, false, 0, 3, true, 4},
		"moving":       {[]int{5}, false, 100, 5, false, 2 * tryPairs},
		"has moved":    {[]int{5}, false, 2, 5, true, 6},
		"moved before": {[]int{5}, true, 0, 5, true, 4},
	} {
		p := &program{moving: tt.before}
		r, _ := reader(p)
		reads := 0
		got, ok := Twice(r, func() int {
			reads++
			p.moving = reads <= tt.moves
			return tt.results[min(reads, len(tt.results))-1]
		}, func(a, b int) bool { return a == b })
		if got != tt.want || ok != tt.ok || reads != tt.reads {
			t.Errorf("%s: %d, %v after %d reads, want %d, %v after %d", name, got, ok, reads, tt.want, tt.ok, tt.reads)
		}
	}
	r, _ := reader(&program{})
	reads := 0
	if _, ok := Twice(r, func() int { reads++; return reads }, func(a, b int) bool { return a == b }); ok {
		t.Error("results that differ each time count")
	}
}

// TestUnmoved: nothing is known of an unknown epoch.
func TestUnmoved(t *testing.T) {
	p := &program{epoch: 7, begun: 6}
	r, _ := reader(p)
	is := func() []bool { return []bool{r.Unmoved(0), r.Unmoved(6), r.Unmoved(7), r.Settled()} }
	if got := is(); !slices.Equal(got, []bool{false, false, true, true}) || r.Begun() != 6 {
		t.Errorf("%v, begun %d", got, r.Begun())
	}
	if p.moving = true; !slices.Equal(is(), []bool{false, false, false, false}) {
		t.Errorf("while objects are moved: %v", is())
	}
	r.Collector = nil
	if r.Known() || r.Settled() || r.Epoch() != 0 || r.Begun() != 0 || r.Unmoved(7) {
		t.Error("something is known without a collector")
	}
}

// TestCalm: the wait ends with the move, or when nobody wants to wait any more.
func TestCalm(t *testing.T) {
	for name, tt := range map[string]struct{ moves, patience, want int }{
		"moving": {100, 100, 5}, "moved": {3, 100, 3}, "impatient": {100, 2, 2}, "settled": {0, 100, 0},
	} {
		p := &program{moving: tt.moves > 0}
		r, _ := reader(p)
		rests := 0
		r.Calm(5, func() bool {
			rests++
			p.moving = rests < tt.moves
			return rests < tt.patience
		})
		if rests != tt.want {
			t.Errorf("%s: %d rests, want %d", name, rests, tt.want)
		}
	}
}

// TestDump: in a core dump nothing changes, and one read is enough.
func TestDump(t *testing.T) {
	r := &Reader{}
	reads := 0
	if !r.Read(func() error { reads++; return nil }, nil) || reads != 1 {
		t.Errorf("%d reads", reads)
	}
	if r.Read(func() error { return errors.New("left out") }, nil) {
		t.Error("a read with an error counts")
	}
	if n, ok := Twice(r, func() int { reads++; return reads }, func(a, b int) bool { return a == b }); n != 2 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	if r.Changes() || !r.Known() || !r.Settled() || !r.Unmoved(0) || !r.Unmoved(r.Epoch()) || r.Begun() != r.Epoch() ||
		!r.Rests(5, "") || !r.Still(5) {
		t.Error("something changes")
	}
}

// TestRests: a thread rests as long as the thread has not run.
func TestRests(t *testing.T) {
	p := &program{ran: map[int]bool{2: true}, stood: map[int]bool{1: true}}
	r, _ := reader(p)
	if !r.Changes() || !r.Rests(1, "1 2 3") || r.Rests(2, "1 2 3") || r.Rests(1, "") || !r.Still(1) || r.Still(2) {
		t.Error("wrong about threads")
	}
}
