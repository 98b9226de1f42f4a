package session

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
)

// Thread is one thread of the target.
type Thread struct {
	ID          arch.Addr // of the runtime's Thread object; 0: the runtime does not know this thread
	ManagedID   int       // Environment.CurrentManagedThreadId
	OSThreadID  int       // as this process sees it
	NSThreadID  int       // as the target sees it, inside its own PID namespace
	Name        string
	Role        string // see Role
	Cooperative bool   // at the time of the listing
	Background  bool   // the process does not wait for its end; also a thread that the runtime does not know
	Halted      bool   // stopped by a signal
	Deep        bool   // in a wait that cannot be interrupted (D) at the time of the listing
	Runs        bool   // on a CPU, or waiting for one (R), at the time of the listing
	Traced      bool   // stopped by a debugger
	Started     uint64 // in clock ticks since boot
}

// Threads lists the threads of the target, the runtime's and native threads.
func (p *Process) Threads() ([]Thread, error) {
	p.Engine.Begin()
	list, _, err := p.list()
	return list, err
}

// list lists threads. lacking is how many threads lack facts, because a dump lacks memory.
func (p *Process) list() (out []Thread, lacking int, err error) {
	tids, err := p.from.Threads()
	if err != nil {
		return nil, 0, err
	}
	if err := p.ReadThreadStore(); err != nil {
		return nil, 0, err
	}
	out = make([]Thread, 0, len(tids))
	before := p.moments.Epoch()
	for _, tid := range tids {
		before := p.from.Misses()
		if t, ok := p.Describe(tid); ok {
			out = append(out, t)
			if p.from.Misses() > before {
				lacking++
			}
		}
	}
	p.nameAgain(out, before)
	return out, lacking, nil
}

// Describe describes one thread, unless it has ended.
func (p *Process) Describe(tid int) (Thread, bool) {
	info, err := p.from.Thread(tid)
	if err != nil {
		return Thread{}, false
	}
	t := Thread{
		OSThreadID: tid, Name: info.Name, Started: info.StartTime, Background: true,
		Halted: info.State == 'T', Traced: info.State == 't', Deep: info.State == 'D',
		Runs: info.State == 'R',
	}
	if t.NSThreadID, err = p.from.NSTid(tid); err != nil {
		return Thread{}, false
	}
	f := roleFacts{main: tid == p.from.PID(), comm: info.Name}
	k, managed := p.known[t.NSThreadID]
	if managed {
		t.ID, t.ManagedID, t.Cooperative = k.Address, k.ManagedID, k.Cooperative
		t.Background = k.State&thread.StateBackground != 0
		f.thread = &k
		f.name, f.nameKnown = p.Managed.Threads.Name(&k)
		if f.name != "" {
			t.Name = f.name
		}
	}
	if info.Name == "" {
		f.comm = cut(t.Name) // a core dump lacks the kernel's names
	}
	if t.Role = p.role(f); t.Role == "" && inherited[f.comm] {
		t.Name = f.name
	}
	return t, true
}

// ReadThreadStore reads the runtime's own list of threads. If the list cannot be read completely, the result is an
// error for a running process. For a core dump, and with Options.NativeOnly, the threads read so far are kept, and
// p.unlisted says why some threads may be missing.
func (p *Process) ReadThreadStore() error {
	p.known, p.unlisted, p.refs = map[int]thread.Thread{}, nil, refs{}
	if p.Managed == nil {
		return nil
	}
	p.Managed.Heap.Refill()
	if p.waits != nil {
		p.waits.Refill()
	}
	if p.Managed.Objects != nil {
		p.Managed.Objects.Begin()
	}
	threads := p.Managed.Threads
	list, err := threads.List()
	for attempt := 1; (err != nil || threads.Unsure()) && attempt < maxAttempts && p.moments.Changes(); attempt++ {
		// Threads start and end, and objects are moved, while the list is read: read it again.
		p.Engine.Cache.Invalidate()
		list, err = threads.List()
	}
	if err != nil {
		err = p.OrExit(fmt.Errorf("cannot read the runtime's list of threads in process %d: %w", p.from.PID(), err))
		if p.moments.Changes() && !p.Options.NativeOnly || p.from.Alive() != nil {
			return err
		}
		p.unlisted = err
	}
	p.take(list)
	return nil
}

// take notes the runtime's threads.
func (p *Process) take(list []thread.Thread) {
	p.known = make(map[int]thread.Thread, len(list))
	for _, t := range list {
		if t.Alive() {
			p.known[t.OSID] = t
		}
	}
}

// ThreadsByID are the runtime's threads in the order of their ids, so that equal moments have equal results.
func (p *Process) ThreadsByID() []thread.Thread {
	return slices.SortedFunc(maps.Values(p.known), func(a, b thread.Thread) int { return cmp.Compare(a.OSID, b.OSID) })
}

// Find returns the thread whose Thread object has that address.
func (p *Process) Find(id arch.Addr) (Thread, error) {
	if id == 0 {
		const text = "thread 0 means the current thread, but the target does not have this thread: give the ThreadID " +
			"of a thread of the target, or walk a thread in its notifications (package events)"
		return Thread{}, &Error{Kind: NoThread, Text: text}
	}
	if p.Runtime == nil {
		return Thread{}, p.NoRuntimeError("threads and functions of the profiling API")
	}
	if p.known == nil {
		if err := p.ReadThreadStore(); err != nil {
			return Thread{}, p.failure(id, err)
		}
	}
	for retry := false; ; retry = true {
		for ns, k := range p.known {
			if k.Address != id {
				continue
			}
			tid, ok := p.HostTID(ns)
			if ok {
				return Thread{ID: id, OSThreadID: tid, NSThreadID: ns}, nil
			}
		}
		if retry {
			return Thread{}, &Error{Kind: NoThread, Thread: id, Text: "no such live thread"}
		}
		p.Engine.Cache.Invalidate()
		if err := p.ReadThreadStore(); err != nil {
			return Thread{}, p.failure(id, err)
		}
	}
}

// HostTID turns a thread id of the target's namespace into ours.
func (p *Process) HostTID(ns int) (int, bool) {
	if got, err := p.from.NSTid(ns); err == nil && got == ns {
		return ns, true // the usual case: one namespace
	}
	tids, err := p.from.Threads()
	if err != nil {
		return 0, false
	}
	for _, tid := range tids {
		if got, err := p.from.NSTid(tid); err == nil && got == ns {
			return tid, true
		}
	}
	return 0, false
}

// failure makes an Error of err, an error from the capture of a thread.
func (p *Process) failure(id arch.Addr, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	kind := Failed
	if errors.Is(err, target.ErrThreadExited) || errors.Is(err, live.ErrExited) {
		kind = NoThread
	}
	return &Error{Kind: kind, Thread: id, Text: "the thread cannot be captured", Err: err}
}
