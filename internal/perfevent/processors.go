package perfevent

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// openCPUs opens an event for each CPU.
func (g *generation) openCPUs(e *Events) error {
	for _, r := range e.rings {
		if err := g.openCPU(e, r); err != nil {
			return err
		}
	}
	return nil
}

// openCPU starts to sample everything on the CPU of a ring, if the CPU is switched on.
func (g *generation) openCPU(e *Events, r *ring) error {
	from := len(g.events)
	err := g.openOn(e, -1, r)
	if err == unix.ENODEV {
		return nil
	}
	if err == unix.EACCES || err == unix.EPERM {
		return wideError(err)
	}
	if err != nil {
		return fmt.Errorf("perfevent: perf_event_open for CPU %d: %w", r.cpu, err)
	}
	if e.filter != nil {
		if err := unix.IoctlSetInt(g.events[from].fd, unix.PERF_EVENT_IOC_SET_BPF, e.filter.program.FD()); err != nil {
			return filterError(err)
		}
	}
	return g.enable(from)
}

// UpdateCPUs opens events for CPUs that have been switched on, and closes the events of CPUs that
// have been switched off: the kernel removes the events of such a CPU (perf_event_exit_cpu).
// Events of threads stay, but do not cover a CPU that is new since Open.
func (e *Events) UpdateCPUs() error {
	if e.gen == nil || e.scope == PerThread {
		return nil
	}
	online, err := onlineCPUs()
	if err != nil {
		return err
	}
	e.gen.events = slices.DeleteFunc(e.gen.events, func(ev event) bool {
		off := !slices.Contains(online, ev.cpu)
		if off {
			unix.Close(ev.fd)
		}
		return off
	})
	for _, cpu := range online {
		if slices.ContainsFunc(e.gen.events, func(ev event) bool { return ev.cpu == cpu }) {
			continue
		}
		r, err := e.ringOf(cpu)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		if err := e.gen.openCPU(e, r); err != nil {
			return err
		}
	}
	return nil
}

// ringOf returns the ring of a CPU that has just been switched on, ready for its event; nil if
// the CPU is off again.
func (e *Events) ringOf(cpu int) (*ring, error) {
	i := slices.IndexFunc(e.rings, func(r *ring) bool { return r.cpu == cpu })
	if i < 0 {
		r, err := e.openRing(cpu, e.ringSize)
		if r == nil || err != nil {
			return nil, err
		}
		if err := r.mmap(e.ringSize); err != nil {
			e.dropRing(r)
			return nil, fmt.Errorf("perfevent: mapping the buffer of CPU %d: %w", cpu, err)
		}
		i = len(e.rings) - 1
	}
	r := e.rings[i]
	if e.filter == nil {
		return r, nil
	}
	r.closeNotes()
	return r, e.openNotes(r)
}

// dropRing undoes openRing for the latest ring.
func (e *Events) dropRing(r *ring) {
	r.close()
	e.rings = e.rings[:len(e.rings)-1]
}
