package churn

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap/internal/testenv"
)

// now is the time by the clock of the program's journal.
func now() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// Events: see testdata/apps/churn/Journal.cs.
const (
	entering = 1 + iota
	entered
	failed
	leaving
	left
)

const (
	journalHeader = 64
	journalEntry  = 32
	joinGate      = 1 << 30
)

// stay is one visit of a thread to a lock, from the journal. An unknown time is 0.
type stay struct {
	thread, gate int

	entering, entered, failed, leaving, left int64

	again times // the thread may have held the lock twice
}

func orNever(t int64) int64 {
	if t == 0 {
		return never
	}
	return t
}

// waits are the times at which the thread may have waited.
func (s *stay) waits() span {
	if s.failed != 0 {
		return span{s.entering, s.failed}
	}
	return span{s.entering, orNever(s.entered)}
}

// may are the times at which the thread may have held the lock.
func (s *stay) may() span {
	if s.failed != 0 {
		return span{1, 0}
	}
	return span{s.entering, orNever(s.left)}
}

// must are the times at which the thread certainly held the lock.
func (s *stay) must() span {
	if s.entered == 0 {
		return span{1, 0}
	}
	return span{s.entered, orNever(s.leaving)}
}

func (s *stay) ended() int64 {
	if s.failed != 0 {
		return s.failed
	}
	return orNever(s.left)
}

// journal has the program's entries.
type journal struct {
	data     []byte
	read     uint64
	byThread map[int][]*stay
	byGate   map[int][]*stay
}

func openJournal(tb testing.TB, path string) *journal {
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		tb.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Munmap(data) })
	return &journal{data: data, byThread: map[int][]*stay{}, byGate: map[int][]*stay{}}
}

func (j *journal) word(at uint64) uint64 { return binary.LittleEndian.Uint64(j.data[at:]) }

// catchUp reads all entries begun by now.
func (j *journal) catchUp() error {
	begun, entries := j.word(8), j.word(0)
	for limit := time.Now().Add(testenv.Hang); j.read < begun; {
		at := journalHeader + j.read%entries*journalEntry
		switch n := j.word(at); {
		case n > j.read+1:
			return fmt.Errorf("entry %d has been overwritten", j.read+1)
		case n < j.read+1:
			if time.Now().After(limit) {
				return fmt.Errorf("entry %d is not written", j.read+1)
			}
			time.Sleep(time.Millisecond)
			continue
		}
		e := append([]byte(nil), j.data[at:at+journalEntry]...)
		if j.word(at) != j.read+1 {
			return fmt.Errorf("entry %d has been overwritten", j.read+1)
		}
		j.read++
		number := func(off int) int { return int(int32(binary.LittleEndian.Uint32(e[off:]))) }
		if err := j.add(int64(binary.LittleEndian.Uint64(e[8:])), number(16), number(20), number(24),
			number(28)); err != nil {
			return err
		}
	}
	return nil
}

func (j *journal) add(at int64, thread, event, gate, depth int) error {
	var s *stay
	for i := len(j.byThread[thread]) - 1; i >= 0 && s == nil; i-- {
		if o := j.byThread[thread][i]; o.gate == gate && o.ended() == never {
			s = o
		}
	}
	if event == entering && depth < 2 {
		s = &stay{thread: thread, gate: gate, entering: at}
		j.byThread[thread], j.byGate[gate] = append(j.byThread[thread], s), append(j.byGate[gate], s)
		return nil
	}
	if s == nil {
		return fmt.Errorf("thread %d: event %d at gate %#x that it did not enter", thread, event, gate)
	}
	switch {
	case event == entering: // once more
		s.again = append(s.again, span{at, never})
	case event == left && depth == 1:
		s.again[len(s.again)-1].to = at
	case depth == 2:
	case event == entered:
		s.entered = at
	case event == failed:
		s.failed = at
	case event == leaving:
		s.leaving = at
	case event == left:
		s.left = at
	}
	return nil
}

// forget drops stays that had ended before a time.
func (j *journal) forget(before int64) {
	for _, m := range []map[int][]*stay{j.byThread, j.byGate} {
		for k, list := range m {
			kept := list[:0]
			for _, s := range list {
				if s.ended() >= before {
					kept = append(kept, s)
				}
			}
			clear(list[len(kept):])
			if m[k] = kept; len(kept) == 0 {
				delete(m, k)
			}
		}
	}
}
