package session

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target"
	"clrsnap/internal/waits"
	"clrsnap/profile"
)

// AlsoBlocking returns the memory that is copied with a thread so that its wait can be explained.
func (p *Process) AlsoBlocking(t *Thread) []target.Range {
	if t.ID == 0 || p.Runtime == nil || p.Runtime.Locks == nil {
		return nil
	}
	return []target.Range{p.Runtime.Locks.BlockingRange(t.ID)}
}

// Blocked is a monitor that a thread is blocked on.
type Blocked struct {
	profile.WaitingFor           // Monitor.Enter or Monitor.Wait; without a type if that is not certain
	At, Lock           arch.Addr // where the thread's stack says so, and the lock's address that it has there
}

// Blocked returns the monitor that a thread is blocked on, which has just been walked with Process.AlsoBlocking; false: it is
// blocked on none, or that is not known.
func (s *Suspension) Blocked() (b Blocked, ok bool) {
	p := s.Process
	if p.Runtime == nil || p.Runtime.Locks == nil || p.Live == nil || s.Walk.Info.Address == 0 {
		return b, false
	}
	blocking, ok := p.Runtime.Locks.Blocked(s.Walk.Info.Address, s.Walk.Stack)
	if !ok {
		return b, false
	}
	at, _ := s.Walk.Stack.Uint64(p.Runtime.Locks.BlockingRange(s.Walk.Info.Address).Addr)
	b.Kind, b.At, b.Lock = profile.MonitorEnter, arch.Addr(at), blocking.Lock
	if blocking.Wait {
		b.Kind = profile.MonitorWait
	}
	class := p.waitReader().Class(blocking)
	if class != nil && !s.Capture.Stopped && p.Live.Holds(s.Thread.OSThreadID, s.Capture.Proof) {
		b.Type = class.Display
	}
	return b, true
}

// explain says what a thread that has just been walked waits for, and what it holds.
func (s *Suspension) explain(st *profile.Thread) {
	p := s.Process
	if len(st.Frames) == 0 {
		return
	}
	if p.Runtime != nil && s.Walk.Info.Address != 0 {
		subject := waits.Subject{Frames: st.Frames, Stack: s.Walk.Stack, Thread: s.Walk.Info}
		if st.State != stateRunning {
			st.Wait = p.waitReader().Wait(&subject)
		}
		st.Holds = p.waitReader().Holds(&subject)
	}
	switch idle := st.Idle(); {
	case st.State == stateRunning || !st.Waits():
	case idle != "" && idle != profile.IdleHost && idle != profile.IdleMain:
		st.Wait = &profile.Wait{Kind: profile.WaitIdle, Certain: true}
	case st.Wait == nil:
		if st.Wait = s.ioWait(); st.Wait == nil && p.inRuntime(st.Frames) {
			st.Wait = &profile.Wait{Kind: profile.WaitRuntime, Certain: true}
		}
	}
}

// inRuntime reports whether a thread has called the runtime's native code, which waits by itself.
func (p *Process) inRuntime(frames []profile.Frame) bool {
	if p.Found == nil || p.Found.Module == nil {
		return false
	}
	for i := range frames {
		if f := &frames[i]; f.Kind != profile.Native || f.Tier != "" {
			return false
		} else if f.Module == p.Found.Module.Name {
			return true
		}
	}
	return false
}

// addHolds adds the monitors that threads hold without having a reference to them on their stacks.
func (p *Process) addHolds(out *profile.Snapshot) {
	if p.Runtime == nil {
		return
	}
	if p.from.changes() {
		p.Engine.Cache.Invalidate()
	}
	held, _ := p.waitReader().Monitors()
	for i := range out.Threads {
		t := &out.Threads[i]
		ns, err := p.from.NSTid(t.OSThreadID)
		if err != nil || t.ThreadID == 0 {
			continue
		}
		for _, h := range held[ns] {
			same := func(w profile.Wait) bool { return w.Object == h.Object && w.Kind == h.Kind }
			if !slices.ContainsFunc(t.Holds, same) {
				t.Holds = append(t.Holds, h)
			}
		}
	}
}

// waitReader returns what explains waits.
func (p *Process) waitReader() *waits.Reader {
	if p.waits == nil {
		p.waits = &waits.Reader{Runtime: p.Runtime, People: people{p}}
		if p.from.changes() {
			p.waits.Live, p.waits.Renew = p.from, p.Engine.Cache.Invalidate
			p.waits.File = p.describeIO
		}
	}
	return p.waits
}

// people are the threads of a process.
type people struct{ p *Process }

// refs are what threads are called, by the id in the target's namespace, since they were listed.
type refs struct {
	known map[int]*profile.ThreadRef
	host  map[int]int // the ids that this process sees
	lists int         // how often threads were listed for host

	connections map[uint64]procfs.Connection // by inode; nil: not needed yet
}

// ByOSID implements waits.People.
func (o people) ByOSID(id int) *profile.ThreadRef {
	if k, ok := o.p.known[id]; ok {
		return o.ref(&k)
	}
	tid, _ := o.hostID(id) // it has started since the runtime's threads were listed, or has ended
	return &profile.ThreadRef{OSThreadID: tid}
}

// maxLists bounds how often threads are listed in a snapshot to find those that have started since.
const maxLists = 16

// hostID returns the id of a thread as this process sees it; false: it has ended.
func (o people) hostID(id int) (int, bool) {
	r := &o.p.refs
	if tid, ok := r.host[id]; ok || r.lists == maxLists {
		return tid, ok
	}
	r.lists++
	tids, err := o.p.from.Threads()
	if err != nil {
		return 0, false
	}
	r.host = map[int]int{}
	for _, tid := range tids {
		if ns, err := o.p.from.NSTid(tid); err == nil {
			r.host[ns] = tid
		}
	}
	tid, ok := r.host[id]
	return tid, ok
}

// ByManagedID implements waits.People.
func (o people) ByManagedID(id int) *profile.ThreadRef {
	for _, k := range o.p.known {
		if k.ManagedID == id {
			return o.ref(&k)
		}
	}
	return &profile.ThreadRef{ManagedThreadID: id}
}

// ByObject implements waits.People.
func (o people) ByObject(obj arch.Addr) *profile.ThreadRef {
	for _, k := range o.p.known {
		if o.p.Runtime.Threads.Object(&k) == obj {
			return o.ref(&k)
		}
	}
	return nil
}

func (o people) ref(k *thread.Thread) *profile.ThreadRef {
	r := &o.p.refs
	if ref := r.known[k.OSID]; ref != nil {
		return ref
	}
	if r.known == nil {
		r.known = map[int]*profile.ThreadRef{}
	}
	ref := &profile.ThreadRef{ManagedThreadID: k.ManagedID}
	if tid, ok := o.hostID(k.OSID); ok {
		ref.OSThreadID = tid
		if t, ok := o.p.Describe(tid); ok {
			ref.Name = t.Name
		}
	}
	r.known[k.OSID] = ref
	return ref
}
