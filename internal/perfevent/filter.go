package perfevent

import "time"

// filter drops what other processes did and what two events have noted.
//
// When the events of a new generation take over, both generations note things
// for a moment; the time decides whose records count. Generations are told apart
// by the ids of their events, which the kernel numbers upwards.
//
// A thread has the events of a generation twice if it was started by a thread
// that had just been given them, and was then found to have none (see
// openGeneration). Of its samples on each processor those of one event count.
type filter struct {
	pid      int
	children bool
	spans    []span // in the order of their ids and times
	twice    uint64 // the first id of events that threads may have twice; 0: there are none
	chosen   map[place]uint64
}

// span is the time of a generation: up to the next one's.
type span struct {
	id    uint64 // the first of its events
	since time.Duration
}

type place struct{ tid, cpu int }

type verdict int

const (
	good verdict = iota
	foreign
	repeated
)

// begin makes a generation count from now on.
func (f *filter) begin(g *generation, now time.Duration) {
	f.spans = append(f.spans, span{g.firstID, now})
	f.twice = g.lateID
	f.forget()
}

// forget is for when threads may have ended unseen.
func (f *filter) forget() { f.chosen = map[place]uint64{} }

func (f *filter) judge(r *Record) verdict {
	if r.PID != f.pid && !f.children {
		return foreign
	}
	if !f.inTime(r) {
		return repeated
	}
	if f.twice == 0 || r.id < f.spans[len(f.spans)-1].id {
		return good
	}
	at := place{r.TID, r.CPU}
	switch r.Kind {
	case Started, Ended:
		f.end(r.TID)
	case Sampled:
		if id, ok := f.chosen[at]; ok && id != r.id {
			return repeated
		}
		f.chosen[at] = r.id
	}
	return good
}

// inTime reports whether a record comes from the generation whose time it is.
func (f *filter) inTime(r *Record) bool {
	for i := len(f.spans) - 1; i >= 0; i-- {
		if s := f.spans[i]; r.id >= s.id {
			return r.Time >= s.since && (i == len(f.spans)-1 || r.Time < f.spans[i+1].since)
		}
	}
	return false
}

// end lets a thread's id be another thread's.
func (f *filter) end(tid int) {
	for at := range f.chosen {
		if at.tid == tid {
			delete(f.chosen, at)
		}
	}
}
