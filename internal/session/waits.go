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

// alsoBlocking returns the memory that is copied with a thread so that its wait can be explained.
func (p *Process) alsoBlocking(t *Thread) []target.Range {
	if t.ID == 0 || p.Runtime == nil || p.Runtime.Locks == nil {
		return nil
	}
	return []target.Range{p.Runtime.Locks.BlockingRange(t.ID)}
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
		t.Holds = withHolds(t.Holds, held[ns])
	}
}

// withHolds adds to what a thread holds what else it does.
func withHolds(list, more []profile.Wait) []profile.Wait {
	for _, h := range more {
		same := func(w profile.Wait) bool { return w.Object == h.Object && w.Kind == h.Kind }
		if !slices.ContainsFunc(list, same) {
			list = append(list, h)
		}
	}
	return list
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
	tid, known := o.hostID(id) // it has started since the runtime's threads were listed, or has ended
	if !known {
		if _, err := o.p.from.Thread(id); err == nil && o.inside(id) == id {
			tid = id // in one namespace
		} else if o.p.refs.lists == maxLists {
			return nil
		}
	}
	return &profile.ThreadRef{OSThreadID: tid}
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
	if o.p.unlisted != nil {
		return nil
	}
	return &profile.ThreadRef{ManagedThreadID: id}
}

// ByAddress implements waits.People.
func (o people) ByAddress(at arch.Addr) *profile.ThreadRef {
	for _, k := range o.p.known {
		if k.Address == at {
			return o.ref(&k)
		}
	}
	return nil
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
