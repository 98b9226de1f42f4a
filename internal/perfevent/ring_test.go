package perfevent

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeRing is a ring in ordinary memory, at a position.
func fakeRing(cpu int, data []byte, tail, head uint64) *ring {
	r := &ring{cpu: cpu, page: &unix.PerfEventMmapPage{Data_head: head}, data: data, tail: tail}
	return r
}

// put writes records into a ring of a size, from a position on.
func put(cpu, size int, tail uint64, records ...[]byte) *ring {
	data, at := make([]byte, size), tail
	for _, b := range records {
		for _, c := range b {
			data[at%uint64(size)] = c
			at++
		}
	}
	return fakeRing(cpu, data, tail, at)
}

func fakeEvents(rings ...*ring) *Events {
	e := &Events{rings: rings, scratch: make([]byte, maxRecord)}
	e.accept = filter{pids: map[int]bool{10: true}, spans: []span{{id: 1}}}
	return e
}

func named11(time uint64) []byte {
	return words(unix.PERF_RECORD_COMM, 0, append([]uint64{two(10, 11), time}, trailer(time)...)...)
}

// TestMerge: records come in the order of time, across rings and across the ends of their memory,
// and never newer than requested.
func TestMerge(t *testing.T) {
	for start := uint64(0); start < 1024; start += 8 {
		e := fakeEvents(put(0, 256, start, named11(1), named11(4), named11(5)),
			put(1, 512, 3*start, named11(2), named11(3), named11(6), named11(9)),
			put(2, 256, 0))
		var times []time.Duration
		visit := func(r *Record) {
			times = append(times, r.Time)
			if r.Name != string(rune(r.Time)) {
				t.Errorf("%+v", r)
			}
		}
		if err := e.read(visit, 6); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(times, []time.Duration{1, 2, 3, 4, 5, 6}) {
			t.Fatal(times)
		}
		if r := e.rings[0]; r.page.Data_tail != r.page.Data_head {
			t.Errorf("the ring was not given back: %d of %d", r.page.Data_tail, r.page.Data_head)
		}
		if err := e.read(visit, forever); err != nil || len(times) != 7 {
			t.Error(err, times)
		}
	}
}

// TestMalformed: a senseless ring is emptied, and the others are read.
func TestMalformed(t *testing.T) {
	for name, bad := range map[string]*ring{
		"no size":         put(0, 256, 0, make([]byte, 64)),
		"too long":        put(0, 256, 0, words(unix.PERF_RECORD_COMM, 0, make([]uint64, 20)...)[:64]),
		"too short":       put(0, 256, 0, words(unix.PERF_RECORD_SAMPLE, 0, 1, 2)),
		"bad body":        put(0, 256, 0, words(unix.PERF_RECORD_FORK, 0, trailer(1)...)),
		"head before":     fakeRing(0, make([]byte, 256), 64, 32),
		"head far beyond": fakeRing(0, make([]byte, 256), 64, 1<<40),
		"head unaligned":  fakeRing(0, make([]byte, 256), 0, 7),
	} {
		e := fakeEvents(bad, put(1, 256, 0, named11(2)))
		n := 0
		if err := e.read(func(*Record) { n++ }, forever); !errors.Is(err, errRecord) || n != 1 {
			t.Errorf("%s: %v, %d records", name, err, n)
		}
		if bad.page.Data_tail != bad.page.Data_head {
			t.Errorf("%s: the ring was not given back", name)
		}
		if err := e.read(func(*Record) { n++ }, forever); err != nil || n != 1 {
			t.Errorf("%s: again: %v", name, err)
		}
	}
}

func FuzzRing(f *testing.F) {
	f.Add(named11(3), uint64(0), uint64(48))
	f.Add(words(unix.PERF_RECORD_SAMPLE, 1,
		sampleWords([]uint64{1, 1 << 63}, unix.PERF_SAMPLE_REGS_ABI_64, []uint64{7, 8}, 16)...), uint64(200),
		uint64(456))
	f.Fuzz(func(t *testing.T, content []byte, tail, head uint64) {
		data := make([]byte, 256)
		copy(data, content)
		r := fakeRing(0, data, tail, head)
		e := fakeEvents(r)
		e.o.Kernel, e.attr.kernel = true, true
		_ = e.read(func(r *Record) {
			if len(r.Stack) > len(data) {
				t.Errorf("%+v", r)
			}
		}, forever)
		if r.tail != head {
			t.Errorf("%d of %d was read", r.tail, head)
		}
	})
}

func TestGoodSize(t *testing.T) {
	for _, tt := range []struct {
		period time.Duration
		cpus   int
		want   int
	}{
		{10 * time.Millisecond, 2, 2 << 20},
		{time.Millisecond, 2, 8 << 20},
		{time.Millisecond, 64, 4 << 20},
		{time.Second, 2, minRing},
		{time.Millisecond, 4096, minRing},
	} {
		if got := goodSize(tt.period, tt.cpus); got != tt.want {
			t.Errorf("%v, %d CPUs: %d", tt.period, tt.cpus, got)
		}
	}
}
