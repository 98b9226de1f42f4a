package perfevent

import "time"

// filter drops the records of other processes, and one of two records that were written
// for the same sample.
//
// When the events of a new generation take over, both generations write records
// for a moment; the time decides whose records count. Generations are distinguished
// by the ids of their events, which ascend.
//
// A thread has the events of a generation twice if it was started by a thread
// that had just been given them, and was then found to have none (see
// openAllThreads). On each CPU only the samples of one of its events count.
type filter struct {
	pids   map[int]bool // the processes that are followed
	open   bool         // the kernel delivers samples of those and their children only
	adopts bool         // their children are to be followed too
	spans  []span       // in the order of their ids and times
	chosen map[place]uint64

	strangers map[int]bool  // processes that are no children of theirs,
	since     time.Duration // as was seen since then
}

// span is the time of a generation: up to the next one's.
type span struct {
	id    uint64 // the first of its events
	late  uint64 // the first of those that threads may have beside others; 0: there are none
	since time.Duration
}

type place struct{ span, tid, cpu int }

type verdict int

const (
	good verdict = iota
	foreign
	repeated
)

// begin makes a generation count from now on.
func (f *filter) begin(g *generation, now time.Duration) {
	f.spans = append(f.spans, span{g.firstID, g.lateID, now})
	f.forget()
}

// forget is for when threads may have ended unseen.
func (f *filter) forget() { f.chosen = map[place]uint64{} }

func (f *filter) judge(r *Record) verdict {
	if !f.open && !f.pids[r.PID] && !(f.adopts && f.adopt(r)) {
		return foreign
	}
	i := f.span(r)
	if i < 0 {
		return repeated
	}
	if f.spans[i].late == 0 {
		return good
	}
	switch r.Kind {
	case Started, Ended:
		f.end(r.TID)
	case Sampled:
		at := place{i, r.TID, r.CPU}
		if id, ok := f.chosen[at]; ok && id != r.id {
			return repeated
		}
		f.chosen[at] = r.id
	}
	return good
}

// span finds the generation that a record comes from, and returns -1 if the time
// of the record is not the generation's.
func (f *filter) span(r *Record) int {
	for i := len(f.spans) - 1; i >= 0; i-- {
		s := f.spans[i]
		if r.id < s.id {
			continue
		}
		if r.Time < s.since || i+1 < len(f.spans) && r.Time >= f.spans[i+1].since {
			return -1
		}
		return i
	}
	return -1
}

// end lets a thread's id be another thread's.
func (f *filter) end(tid int) {
	for at := range f.chosen {
		if at.tid == tid {
			delete(f.chosen, at)
		}
	}
}

// adopt follows the process of a record if it descends from one that is followed. The
// ids of other processes are cached for a second only, because ids are reused.
func (f *filter) adopt(r *Record) bool {
	if f.strangers == nil || r.Time > f.since+time.Second {
		f.strangers, f.since = map[int]bool{}, r.Time
	}
	if f.strangers[r.PID] {
		return false
	}
	const generations = 64
	pid := r.PID
	for range generations {
		s, err := statusOf(pid)
		if err != nil || s.PPID == 0 {
			break
		}
		if f.pids[s.PPID] {
			f.pids[r.PID] = true
			return true
		}
		pid = s.PPID
	}
	f.strangers[r.PID] = true
	return false
}
