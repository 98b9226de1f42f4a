package churn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"clrsnap/snapshot"
)

// claim is a certain statement of clrsnap about one thread: the thread waits for a lock, or
// holds a lock.
type claim struct {
	thread int
	holds  bool
	w      snapshot.Wait
	when   span
}

func (c *claim) String() string {
	verb := "waits"
	if c.holds {
		verb = "holds"
	}
	return fmt.Sprintf("thread %d %s: %+v owner %+v", c.thread, verb, c.w, c.w.Owner)
}

// slots are the places of locks of each kind in Gates.All. A monitor's class says its slot.
var slots = map[snapshot.WaitKind][]int{snapshot.WriteLock: {6, 7}, snapshot.LockEnter: {8, 9}}

// fits reports whether a claim can be about a gate.
func (c *claim) fits(gate int) bool {
	switch c.w.Kind {
	case snapshot.ThreadJoin:
		return gate&joinGate != 0
	case snapshot.MonitorEnter:
		n, ok := strings.CutPrefix(c.w.Type, "Churn.Key<Churn.S")
		slot, err := strconv.Atoi(strings.TrimSuffix(n, ">"))
		return ok && err == nil && gate&joinGate == 0 && gate&0xff == slot
	}
	return gate&joinGate == 0 && slices.Contains(slots[c.w.Kind], gate&0xff)
}

// judged reports whether the journal knows the lock of a claim.
func judged(w *snapshot.Wait) bool {
	switch w.Kind {
	case snapshot.MonitorEnter:
		return strings.HasPrefix(w.Type, "Churn.Key<")
	case snapshot.LockEnter, snapshot.WriteLock, snapshot.ThreadJoin:
		return true
	}
	return false
}

// possible returns when a claim can have been true. wrong is the reason for never.
func (j *journal) possible(c *claim) (when times, wrong string) {
	wrong = "it was never at such a lock"
	for _, s := range j.byThread[c.thread] {
		if !c.fits(s.gate) {
			continue
		}
		var t times
		var why string
		if c.holds {
			t, why = j.held(c.thread, s.gate, c), "it does not hold it"
		} else {
			t, why = j.waited(s, c)
		}
		if when = timesOf(append(when, t...)...); len(t) == 0 {
			wrong = why
		}
	}
	return when, wrong
}

// waited returns when a thread can have waited at a gate as claimed.
func (j *journal) waited(s *stay, c *claim) (times, string) {
	when := timesOf(s.waits()).and(times{c.when})
	if len(when) == 0 {
		return nil, "it does not wait"
	}
	switch {
	case c.w.Kind == snapshot.ThreadJoin:
		id := s.gate &^ joinGate
		switch {
		case c.w.Owner == nil:
		case c.w.Owner.OSThreadID == 0:
			if when = when.but(j.lives(id, s.gate)); len(when) == 0 {
				return nil, "the thread that it joins has not ended"
			}
		case c.w.Owner.OSThreadID != id:
			return nil, fmt.Sprintf("it joins %d", id)
		}
		return when, ""
	case c.w.Object == 0: // no claim about the lock
		return when, ""
	case c.w.Owner == nil:
		return when.but(j.taken(s.gate, 0)), "somebody holds it"
	case c.w.Owner.OSThreadID == 0:
		return nil, "its owner has not ended"
	}
	if when = when.and(j.held(c.w.Owner.OSThreadID, s.gate, c)); len(when) == 0 {
		return nil, "that is not its owner"
	}
	if n := j.waiters(s.gate, c.when); c.w.Waiters > n {
		return nil, fmt.Sprintf("there are not more than %d waiters", n)
	}
	return when, ""
}

// lives returns when a joined thread certainly lives.
func (j *journal) lives(thread, gate int) times {
	var out []span
	for _, s := range j.byThread[thread] {
		if s.gate == gate {
			out = append(out, s.waits())
		}
	}
	return timesOf(out...)
}

// held returns when a thread can have held a gate, as often as claimed.
func (j *journal) held(thread, gate int, c *claim) times {
	var may times
	for _, s := range j.byThread[thread] {
		if s.gate == gate {
			t := timesOf(s.may())
			if c.w.Recursion > 1 {
				t = t.and(timesOf(s.again...))
			}
			may = append(may, t...)
		}
	}
	return timesOf(may...).and(times{c.when}).but(j.taken(gate, thread))
}

// taken returns when threads other than but certainly held a gate.
func (j *journal) taken(gate, but int) times {
	var out []span
	for _, s := range j.byGate[gate] {
		if s.thread != but {
			out = append(out, s.must())
		}
	}
	return timesOf(out...)
}

// waiters is the greatest possible number of threads waiting at a gate at the same time.
func (j *journal) waiters(gate int, when span) (n int) {
	for _, s := range j.byGate[gate] {
		if len(timesOf(s.waits()).and(times{when})) > 0 {
			n++
		}
	}
	return n
}
