// Package moment reads memory of a process so that everything read was true at one moment.
//
// A program runs while clrsnap reads. Threads change objects, and the garbage collector moves objects. A Reader repeats
// a read until the read was of one moment, and tells whether the collector has moved an object, or a thread has run,
// since an earlier moment. A core dump is of one moment: nothing changes there.
package moment

import (
	"time"

	"clrsnap/internal/clr/heap"
	"clrsnap/internal/target"
)

// Epoch is a GC epoch. While two epochs are equal, the collector has moved no object. 0: the epoch is not known, or
// objects are being moved.
type Epoch = heap.Stamp

// dumped is the epoch of a core dump.
const dumped Epoch = 1

// Running is a running process.
type Running interface {
	target.Memory
	// Holds reports whether a thread has not run since the capture with a proof.
	Holds(tid int, proof target.Proof) bool
	// StillBlocked reports whether a thread has not run since the thread's latest capture without a stop.
	StillBlocked(tid int) (still bool, ran time.Duration)
}

// Collector tells when objects are moved: heap.Reader.
type Collector interface {
	// Settled reports whether no object is being moved, according to mem.
	Settled(mem target.Memory) bool
	// Known reports whether the collector's description of itself is known.
	Known() bool
	// Stamp is the epoch of now, Begun the epoch of the latest begin of reading.
	Stamp(now target.Memory) Epoch
	Begun() Epoch
}

// Reader reads a process at moments. A Reader is not safe for concurrent use.
type Reader struct {
	Running   Running          // nil: a core dump
	Collector Collector        // nil: no managed heap is known
	Seen      *target.Evidence // the memory that read functions use
	Forget    func()           // drops remembered memory
}

// How often Read reads, and how often Twice reads twice.
const (
	tries    = 4
	tryPairs = 8
)

// Changes reports whether another read can find something else.
func (r *Reader) Changes() bool { return r.Running != nil }

// Renew drops remembered memory, unless the memory is a core dump's.
func (r *Reader) Renew() {
	if r.Running != nil {
		r.Forget()
	}
}

// Read repeats read until one read is consistent: the objects read have the same contents at a second look, and the
// collector has moved nothing meanwhile. Read gives up when valid, if not nil, returns false. For a core dump one call
// of read is enough.
func (r *Reader) Read(read func() error, valid func() bool) bool {
	if r.Running == nil {
		return read() == nil
	}
	holds := func() bool { return valid == nil || valid() }
	if !holds() {
		return false // most often a call is over already
	}
	for range tries {
		stands := r.Once(read)
		if !holds() {
			return false
		}
		if stands {
			return true
		}
		r.Forget()
	}
	return false
}

// Once calls read, and reports whether the read was consistent.
func (r *Reader) Once(read func() error) bool {
	if r.Running == nil {
		return read() == nil
	}
	defer r.Seen.End()
	settled := r.Settled()
	r.Seen.Begin()
	err := read()
	r.Seen.End()
	return err == nil && settled && r.Seen.Stands(r.Running) && r.Settled()
}

// Twice repeats read until two successive results are equal, and the collector has moved nothing meanwhile. False: no
// two results were, and the result is the latest but one. For a core dump one call of read is enough.
func Twice[T any](r *Reader, read func() T, equal func(a, b T) bool) (result T, ok bool) {
	if r.Running == nil {
		return read(), true
	}
	for range tryPairs {
		r.Forget()
		settled := r.Settled()
		result = read()
		r.Forget()
		settled = settled && r.Settled()
		again := read()
		r.Forget()
		if settled && r.Settled() && equal(result, again) {
			return result, true
		}
	}
	return result, false
}

// Settled reports whether the collector moves no object of a running process now.
func (r *Reader) Settled() bool {
	return r.Running == nil || r.Collector != nil && r.Collector.Settled(r.Running)
}

// Known reports whether moves of objects are noticed.
func (r *Reader) Known() bool { return r.Running == nil || r.Collector != nil && r.Collector.Known() }

// Calm waits while the collector moves objects. rest waits a little, most times, and returns false to end the wait.
func (r *Reader) Calm(most int, rest func() bool) {
	for n := 0; n < most && r.Known() && !r.Settled() && rest(); n++ {
	}
}

// Epoch returns the GC epoch of now. The epoch of a core dump is always the same.
func (r *Reader) Epoch() Epoch {
	switch {
	case r.Running == nil:
		return dumped
	case r.Collector == nil:
		return 0
	}
	return r.Collector.Stamp(r.Running)
}

// Begun returns the GC epoch of the latest begin of reading.
func (r *Reader) Begun() Epoch {
	switch {
	case r.Running == nil:
		return dumped
	case r.Collector == nil:
		return 0
	}
	return r.Collector.Begun()
}

// Unmoved reports whether the collector has certainly moved no object since an epoch.
func (r *Reader) Unmoved(since Epoch) bool {
	return r.Running == nil || since != 0 && since == r.Epoch()
}

// Rests reports whether a thread has certainly not run since the capture with a proof.
func (r *Reader) Rests(tid int, proof target.Proof) bool {
	return r.Running == nil || r.Running.Holds(tid, proof)
}

// Still reports whether a thread has certainly not run since the thread's latest capture without a stop.
func (r *Reader) Still(tid int) bool {
	if r.Running == nil {
		return true
	}
	still, _ := r.Running.StillBlocked(tid)
	return still
}
