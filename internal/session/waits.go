package session

import (
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
		subject := waits.Subject{
			Frames: st.Frames, Stack: s.Walk.Stack, Thread: s.Walk.Info, Blocked: st.State != stateRunning,
		}
		if s.Capture.Proof != "" && p.Live != nil {
			subject.Still = func() bool { return p.Live.Holds(s.Thread.OSThreadID, s.Capture.Proof) }
		}
		if s.restsOn = nil; st.State != stateRunning {
			st.Wait = p.waitReader().Wait(&subject)
			if w := st.Wait; w != nil && w.Certain && w.Owner != nil && p.Live != nil {
				s.restsOn = p.waitReader().RestsOn()
			}
		}
		st.Holds = p.waitReader().Holds(&subject)
		s.noteRuns(&subject)
	}
	switch idle := st.Idle(); {
	case st.State == stateRunning || !st.Waits():
	case idle != "" && idle != profile.IdleHost && idle != profile.IdleMain:
		st.Wait = &profile.Wait{Kind: profile.WaitIdle, Certain: true}
	case st.Wait == nil:
		if st.Wait = s.ioWait(); st.Wait == nil && p.inRuntime(st.Frames) {
			st.Wait = s.runtimeWait()
		}
	}
	s.timeout(st)
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

// addHolds adds the monitors that threads hold without having a reference to them on their stacks. They are read when
// all stacks have been, so they are certain of threads that have not run since, unless another thread has been seen to
// hold the same.
func (p *Process) addHolds(out *profile.Snapshot) {
	if p.Runtime == nil {
		return
	}
	if p.from.changes() {
		p.Engine.Cache.Invalidate()
	}
	held, _ := p.waitReader().Monitors()
	owners := ownersOf(out.Threads)
	for i := range out.Threads {
		t := &out.Threads[i]
		ns, err := p.from.NSTid(t.OSThreadID)
		if err != nil || t.ThreadID == 0 || len(held[ns]) == 0 {
			continue
		}
		still := p.still(t.OSThreadID)
		for _, h := range held[ns] {
			if k, ok := p.known[ns]; !ok || uint64(k.Address) != t.ThreadID {
				continue // the id is another thread's by now
			}
			if owner, ok := owners[h.Object]; !still || ok && owner != t.OSThreadID {
				h.Certain = false
			}
			t.Holds = withHold(t.Holds, h)
		}
	}
}

// withHold adds to what a thread holds what else it does.
func withHold(list []profile.Wait, h profile.Wait) []profile.Wait {
	for i := range list {
		if list[i].Object == h.Object && list[i].Kind == h.Kind {
			return list
		}
	}
	return append(list, h)
}

// ownersOf returns who has been seen to hold monitors, by their objects.
func ownersOf(threads []profile.Thread) map[uint64]int {
	owners := map[uint64]int{}
	for i := range threads {
		if w := threads[i].Wait; w != nil && w.Kind == profile.MonitorEnter && w.Certain && w.Owner != nil {
			owners[w.Object] = w.Owner.OSThreadID
		}
	}
	return owners
}

// waitReader returns what explains waits.
func (p *Process) waitReader() *waits.Reader {
	if p.waits == nil {
		p.waits = &waits.Reader{Runtime: p.Runtime, People: people{p}}
		if p.from.changes() {
			p.waits.Live, p.waits.Renew = p.Live, p.Engine.Cache.Invalidate
			p.waits.File = p.describeIO
			p.Runtime.Seen.Directly(p.Live)
		}
	}
	return p.waits
}

// people are the threads of a process.
type people struct{ p *Process }

// refs are what threads are called, by the id in the target's namespace, since they were listed.
type refs struct {
	known   map[int]*profile.ThreadRef
	host    map[int]int // the ids that this process sees
	managed map[int]int // the ids in the target's namespace, by managed id; nil: not needed yet
	at      map[arch.Addr]int
	lists   int // how often threads were listed

	connections map[uint64]procfs.Connection // by inode; nil: not needed yet
}

// OS implements waits.People.
func (o people) OS(id int) *thread.Thread {
	if t, ok := o.p.known[id]; ok {
		return &t
	}
	return nil
}

// Managed implements waits.People.
func (o people) Managed(id int) *thread.Thread {
	o.index()
	return o.OS(o.p.refs.managed[id])
}

// At implements waits.People.
func (o people) At(address arch.Addr) *thread.Thread {
	o.index()
	return o.OS(o.p.refs.at[address])
}

func (o people) index() {
	r := &o.p.refs
	if r.managed != nil {
		return
	}
	r.managed, r.at = make(map[int]int, len(o.p.known)), make(map[arch.Addr]int, len(o.p.known))
	for id, t := range o.p.known {
		r.managed[t.ManagedID], r.at[t.Address] = id, id
	}
}

// inside is the id of a thread in the target's namespace; 0: that is not known.
func (o people) inside(tid int) int {
	ns, err := o.p.from.NSTid(tid)
	if err != nil {
		return 0
	}
	return ns
}

// maxLists bounds how often threads are listed in a snapshot to find those that have started since.
const maxLists = 16

// Renew implements waits.People.
func (o people) Renew() bool {
	r := &o.p.refs
	if !o.p.from.changes() || r.lists >= maxLists {
		return false
	}
	r.lists++
	o.p.Engine.Cache.Invalidate()
	list, err := o.p.Runtime.Threads.List()
	if err != nil {
		return false
	}
	o.p.take(list)
	*r = refs{lists: r.lists, connections: r.connections}
	return true
}

// hostID returns the id of a thread as this process sees it; false: it has ended.
func (o people) hostID(id int) (int, bool) {
	r := &o.p.refs
	if tid, ok := r.host[id]; ok {
		return tid, ok
	}
	if _, err := o.p.from.Thread(id); err == nil && o.inside(id) == id {
		return id, true // the usual case: one namespace
	}
	if r.host != nil && (r.lists >= maxLists || o.inside(o.p.from.PID()) == o.p.from.PID()) {
		return 0, false
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

// All implements waits.People.
func (o people) All() bool { return o.p.unlisted == nil }

// Other implements waits.People.
func (o people) Other(osID int) *profile.ThreadRef {
	tid, known := o.hostID(osID)
	if pid := o.p.from.PID(); !known && o.p.refs.lists >= maxLists && o.inside(pid) != pid {
		return nil // in another namespace only a list tells
	}
	return &profile.ThreadRef{OSThreadID: tid}
}

// Ref implements waits.People.
func (o people) Ref(k *thread.Thread) *profile.ThreadRef {
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

// runtimeWait explains a wait in the runtime's native code.
func (s *Suspension) runtimeWait() *profile.Wait {
	if s.Walk.Info.Address != 0 {
		if w := s.Process.waitReader().Constructor(s.Capture.Head, s.Walk.Info.Address); w != nil {
			return w
		}
	}
	return &profile.Wait{Kind: profile.WaitRuntime, Certain: true}
}

// Operations of futex(2) that wait, and flags of them.
const (
	futexWait       = 0
	futexWaitBitset = 9
	futexFlags      = 128 | 256
)

// timeout says of a wait for something that another thread has to do whether it has a timeout, where the primitive
// itself does not tell: the system call in which the thread waits has none.
func (s *Suspension) timeout(st *profile.Thread) {
	w, c := st.Wait, s.Capture
	if w == nil || w.Timeout != 0 || c.SyscallNr != futexCall || c.SyscallArgs == [6]uint64{} {
		return
	}
	switch w.Kind {
	case profile.ThreadJoin, profile.ReadLock, profile.UpgradeableLock, profile.WriteLock, profile.LockEnter,
		profile.HandleOne, profile.HandleAny, profile.HandleAll:
	default:
		return
	}
	op := c.SyscallArgs[1] &^ futexFlags
	if (op == futexWait || op == futexWaitBitset) && c.SyscallArgs[3] == 0 {
		w.Timeout = profile.Forever
	}
}

const futexCall = 202 // on x86-64: see Syscalls
