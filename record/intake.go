package record

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"clrsnap/events"
	"clrsnap/internal/link"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// drain takes the reports of all agents.
func (e *eventSampler) drain() {
	e.arrive()
	for pid, np := range e.of {
		switch {
		case np.over:
		case np.rp != nil:
			np.drain()
		case np.link.HasEnded():
			e.forget(pid)
		}
	}
}

// forget detaches the agent of a process that never could be read.
func (e *eventSampler) forget(pid int) {
	if np := e.of[pid]; np != nil && !np.over {
		np.leave()
		e.note("The events of process %d are lost: the process could not be read, or exited too soon.", pid)
	}
}

// drain takes the reports of the process's agent.
func (np *notifiedProcess) drain() {
	ended := np.link.HasEnded() // asked before the last records are read
	np.pace.Begin(np.e.r.now)
	err := np.take(np.pace.Spent)
	np.pace.End()
	if err != nil {
		np.e.note("The events of process %d end before the recording does: %v.", np.rp.p.Live.PID(), err)
		ended = true
	}
	np.lookAtHolders()
	if np.live != nil {
		np.live.p = np.rp.p
		np.live.tend(live.Monotonic())
	}
	if now := live.Monotonic(); now >= np.overdue {
		np.overdue = now + overdueEvery
		np.settle(now-exceptionPatience, unknown)
		np.forget(now-rethrowPatience, maxCaught)
	}
	if ended {
		np.leave()
	}
}

// overdueEvery is how often to look for exceptions that have waited for too long.
const overdueEvery = exceptionPatience / 20

// take handles the agent's reports, until enough returns true.
func (np *notifiedProcess) take(enough func() bool) error {
	var err error
	if len(np.queue) == 0 {
		np.queue, err = np.link.Records(np.rp.p)
	}
	if len(np.queue) == 0 {
		return err
	}
	e := np.e
	e.latest = e.r.now
	np.rp.p.Engine.Begin()
	np.rp.frames.begin()
	for i, r := range np.queue {
		if i%link.PaceEvery == 0 && enough() {
			np.queue, np.slowed = np.queue[i:], true
			return err
		}
		n := notification{subscribed.Notification(np.rp.p, &e.o, np.link.Begun.AllocMeans, r), r}
		if np.live != nil && np.live.collections.notified(n.Notification) {
			np.live.stale = true
		}
		if n.At >= e.r.start && n.At <= e.until {
			np.notified(&n)
		} else if np.live != nil {
			np.live.refuse(r)
		}
	}
	np.queue = nil
	return err
}

// leave has the agent leave, and handles the agent's last reports.
func (np *notifiedProcess) leave() {
	died, err := np.link.Stop()
	np.end(died, err)
}

// end handles the rest after an agent was stopped. died and err are the results of Stop.
func (np *notifiedProcess) end(died bool, err error) {
	np.over = true
	if err != nil {
		np.e.note("The agent has not left process %d in time: %v. The agent is still loaded, but inactive.", np.pid,
			err)
	}
	fate := inFlight
	if np.rp != nil {
		all := func() bool { return false }
		for range 2 { // first the records here, and then the records in link
			_ = np.take(all) // an error was in the notes before
		}
		if died || np.rp.p.Live.Alive() != nil {
			fate = overtaken
			np.fatal()
		}
	}
	if np.live != nil && !np.live.over {
		np.live.ended = true
		np.live.finish()
	}
	np.settle(np.e.until, fate)
	np.forget(math.MaxInt64, 0)
	np.e.rethrows += np.unreported()
	for mode, s := range np.stats() {
		f := &np.e.counts[mode]
		f.lost, f.seen = f.lost+s.lost, f.seen+s.seen
	}
	np.link.Close()
	if np.slowed || np.link.Slowed() {
		np.e.note("Process %d reported more events than clrsnap reads at once, with at most %.0f %% of a CPU. "+
			"Some events were read later; events without room in the agent are lost.",
			np.pid, 100*(link.PumpShare+readShare))
	}
}

// finish takes the last notifications. ctx is the context of the recording, which has ended after an
// interrupt.
func (e *eventSampler) finish(ctx context.Context) {
	e.until = e.r.now
	e.lastLook(ctx)
	e.stop()
}

// stop detaches the agents, and takes their last reports.
func (e *eventSampler) stop() {
	type stopped struct {
		np   *notifiedProcess
		died bool
		err  error
	}
	left := make(chan stopped)
	n := 0
	for _, np := range e.of {
		if np.over {
			continue
		}
		n++
		after := np.link.Counts()
		np.after = &after
		go func() {
			died, err := np.link.Stop()
			left <- stopped{np, died, err}
		}()
	}
	for range n {
		s := <-left
		s.np.end(s.died, s.err)
	}
}

// notified handles one notification.
func (np *notifiedProcess) notified(n *notification) {
	switch n.Event {
	case events.ObjectAllocated:
		np.allocated(n)
	case events.ExceptionThrown, events.ExceptionRethrown:
		np.throws(n)
	case events.ExceptionCatcherEnter:
		np.catches(n)
	case events.LockContended:
		np.contended(n)
	case events.ThreadWaited:
		np.waited(n)
	case events.ThreadStarting:
		np.add(n, profile.ThreadStart, 1, 1, np.starting(n))
	case events.ThreadCreated:
		np.e.lives.created++
		np.born(n)
	case events.ThreadDestroyed:
		np.died(n)
	default:
		np.pauses.notified(np, n)
	}
}

// remarks are notes for the reader of the recording about its events.
func (e *eventSampler) remarks() []string {
	var out []string
	for _, rp := range e.r.all {
		if np := e.of[rp.p.Live.PID()]; np == nil && e.launcher != nil {
			out = append(out,
				fmt.Sprintf("Process %d reports no events: the runtime has not loaded the agent.", rp.p.Live.PID()))
		}
	}
	if e.has(profile.ThreadStart) && e.lives.created > 0 {
		s := fmt.Sprintf("%s began and %d ended", counted(e.lives.created, "thread", "threads"), e.lives.ended)
		if n := e.lives.created - int(e.countsOf(profile.ThreadStart).seen); n > 0 {
			s += fmt.Sprintf(". Managed code did not start %d of them: they are threads of the runtime, or native "+
				"threads that have called managed code", n)
		}
		if k := e.lives.known; len(k) > 0 {
			slices.Sort(k)
			s += fmt.Sprintf(". Threads that began and ended in the recording lived for %v (median)",
				k[len(k)/2].Round(time.Microsecond))
		}
		if e.lives.unknown > 0 {
			s += fmt.Sprintf(". How long %d of them lived was not recorded, because more than %d were alive",
				e.lives.unknown, maxLives)
		}
		out = append(out, s+".")
	}
	if want := e.o.AllocationBytes; e.has(profile.Alloc) && want < e.every(profile.Alloc) {
		out = append(out, fmt.Sprintf("An object was recorded for every %s of allocations, not for every %s: "+
			"the runtime itself samples no more often. A program that clrsnap starts can report every object "+
			"(--every-object).", bytesText(e.every(profile.Alloc)), bytesText(want)))
	}
	if e.r.o.Live {
		out = append(out, e.liveRemarks()...)
	}
	return out
}

// arrive handles the agents that have connected.
func (e *eventSampler) arrive() {
	var launched <-chan link.Accepted
	if e.launcher != nil {
		launched = e.launcher.Accepted()
	}
	for {
		select {
		case m, ok := <-launched:
			if !ok {
				launched = nil
				continue
			}
			e.arrived(m)
		case m := <-e.arrivals:
			e.arrived(m)
		default:
			return
		}
	}
}

func (e *eventSampler) arrived(m link.Accepted) {
	if m.Err != nil {
		e.note("Process %d reports no events: %v.", m.PID, m.Err)
		return
	}
	np := e.met(m.PID, m.Link)
	np.checkWaits()
	if rp := e.r.recorded(m.PID); rp != nil && !rp.ended {
		np.reads(rp)
	}
}

// opened handles a process that can be read now. A child of an attached process has no agent yet: its
// agent is loaded.
func (e *eventSampler) opened(rp *recordedProcess) {
	np := e.of[rp.p.Live.PID()]
	switch {
	case np != nil:
		np.reads(rp)
	case e.launcher == nil:
		e.attachLater(rp)
	}
}
