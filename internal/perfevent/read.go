package perfevent

import (
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const forever = time.Duration(math.MaxInt64)

// settle is the least age of a record for reading. The kernel writes a record within microseconds
// of the record's time. So after settle no older record follows in another ring, unless a
// hypervisor took the CPU away meanwhile.
const settle = time.Millisecond

// Read visits the records in the rings in the order of time, without the last millisecond. After
// SetPrompt Read visits all records, so a record that is some microseconds older can follow. A
// Record is valid during its visit only; its place in the ring is free afterwards. An error means
// that the contents of a ring were dropped.
func (e *Events) Read(visit func(*Record)) error {
	if e.gen == nil {
		return os.ErrClosed
	}
	if e.prompt {
		return e.read(visit, forever)
	}
	return e.read(visit, monotonic()-settle)
}

// read merges the rings by time. A few records are in the wrong order inside their ring, because
// an interrupt came during the writing of a record. They stay in that order.
func (e *Events) read(visit func(*Record), until time.Duration) error {
	m := merge{rings: e.rings}
	m.load()
	for {
		r := m.first()
		if r == nil || r.time > until {
			return m.err
		}
		r.visit(e, visit, &m)
	}
}

func (r *ring) visit(e *Events, visit func(*Record), m *merge) {
	ok, err := e.parse(r, r.record(e.scratch))
	if err != nil {
		m.fail(r.broken(r.size))
	} else {
		if ok && e.wanted(&e.rec, r) {
			visit(&e.rec)
		}
		r.tail += r.size
	}
	r.release()
	m.advance(r)
}

// parse reads a record of a ring into e.rec. It returns false for a record that is not delivered
// by itself.
func (e *Events) parse(r *ring, b []byte) (ok bool, err error) {
	if r.notesID != 0 && u32(b, 0) == unix.PERF_RECORD_SAMPLE && u64(b, sampleID) == r.notesID {
		r.note, err = parseNote(b)
		return false, err
	}
	ok, err = e.rec.parse(b, e.attr.kernel && e.o.Kernel)
	if ok && err == nil && e.rec.Kind == Sampled && r.note.tid == e.rec.TID {
		e.rec.Name = r.note.name
	}
	r.note = note{}
	return ok, err
}

// wanted counts a record and reports whether the caller gets it.
func (e *Events) wanted(r *Record, from *ring) bool {
	switch r.Kind {
	case Lost:
		r.CPU = from.cpu
		e.stats.Lost += r.Lost
		e.accept.forget()
		return true
	case Throttled:
		e.stats.Throttled++
		return true
	}
	switch e.accept.judge(r) {
	case foreign:
		e.stats.Foreign++
		return false
	case repeated:
		e.stats.Repeated++
		return false
	}
	if r.Kind == Sampled {
		e.stats.Samples++
	}
	return true
}

// merge finds the ring with the oldest next record.
type merge struct {
	rings []*ring // all of them
	live  []*ring // rings with a next record
	err   error   // the first one
}

func (m *merge) load() {
	for _, r := range m.rings {
		r.load()
	}
	for _, r := range m.rings {
		if m.next(r) {
			m.live = append(m.live, r)
		}
	}
}

func (m *merge) next(r *ring) bool {
	ok, err := r.next()
	if err != nil {
		m.fail(err)
		r.release()
	}
	return ok
}

func (m *merge) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *merge) first() *ring {
	var first *ring
	for _, r := range m.live {
		if first == nil || r.time < first.time {
			first = r
		}
	}
	return first
}

// advance goes on to the next record of a ring, or leaves the ring out.
func (m *merge) advance(r *ring) {
	if m.next(r) {
		return
	}
	for i, l := range m.live {
		if l == r {
			m.live = append(m.live[:i], m.live[i+1:]...)
			return
		}
	}
}
