package perfevent

import "time"

// filter drops the records of other processes, and one of two records of the same sample.
//
// When the events of a new generation take over, both generations write records for a moment; the
// time decides whose records count. The ids of the events, which ascend, distinguish the
// generations.
//
// A thread can have the events of a generation twice. That happens if its parent thread had just
// been given the events, and openAllThreads then found the thread without events. On each CPU
// only the samples of one of the thread's events count.
type filter struct {
	pids   map[int]bool // the followed processes
	open   bool         // the kernel delivers samples of these processes and their children only
	adopts bool         // follow their children too
	spans  []span       // in the order of their ids and times
	chosen map[place]uint64

	strangers map[int]bool  // processes outside the family,
	since     time.Duration // as seen since then
}

// span is the time of a generation, up to the next generation's.
type span struct {
	id    uint64 // the first of its events
	late  uint64 // the first event that a thread may have beside other events; 0: none
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

// forget is for a time when threads may have ended unseen.
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

// span finds the generation of a record, and returns -1 if the record's time is not the
// generation's.
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

// end frees a thread's id for another thread.
func (f *filter) end(tid int) {
	for at := range f.chosen {
		if at.tid == tid {
			delete(f.chosen, at)
		}
	}
}

// adopt follows the process of a record if the process descends from a followed process. The ids
// of other processes are cached for a second only, because ids are reused.
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
