package session

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/descriptors"
	"clrsnap/internal/target"
	"clrsnap/internal/waits"
	"clrsnap/snapshot"
)

// AlsoBlocking returns the memory to copy with a thread, to explain the thread's wait.
func (p *Process) AlsoBlocking(t *Thread) []target.Range {
	if t.ID == 0 || p.Managed == nil || p.Managed.Locks == nil {
		return nil
	}
	if r, ok := p.blockingRange(t.ID); ok {
		return []target.Range{r}
	}
	return nil
}

// blockingRange is where a thread says what it is blocked on. The argument is the address of the Thread object.
func (p *Process) blockingRange(thread arch.Addr) (target.Range, bool) {
	if p.Managed.Locks.Managed() {
		return p.Managed.InfoRange(thread)
	}
	return p.Managed.Locks.BlockingRange(thread)
}

// Blocked is a monitor that a thread is blocked on, or from .NET 11 on a Lock, or a ManualResetEventSlim with a Lock.
type Blocked struct {
	Kind snapshot.WaitKind // Monitor.Enter, Monitor.Wait, SemaphoreSlim.Wait, Lock.Enter or ManualResetEventSlim.Wait
	// Type is the display name of the monitor's class; empty if the kind is not certain, and for Lock.Enter and
	// ManualResetEventSlim.Wait.
	Type     string
	At, Lock arch.Addr // the place on the thread's stack that names the lock, and the address there
	Unsure   bool      // whether the Lock is a monitor is not known yet
}

// Blocked returns the monitor that a thread is blocked on. The thread has just been walked with Process.AlsoBlocking.
// false: the thread is blocked on no monitor, or the monitor is not known.
func (s *Suspension) Blocked() (b Blocked, ok bool) {
	p := s.Process
	if p.Managed == nil || p.Managed.Locks == nil || s.Walk.Info.Address == 0 {
		return b, false
	}
	field, ok := p.blockingRange(s.Walk.Info.Address)
	if !ok {
		return b, false
	}
	b.Kind = snapshot.MonitorEnter
	var class *object.Class
	if p.Managed.Locks.Managed() {
		info, ok := p.Managed.Locks.Info(field.Addr, s.Walk.Stack)
		if !ok {
			return b, false
		}
		epoch := p.moments.Epoch()
		if class, ok = p.WaitReader().MonitorClass(&info); !ok {
			b.At, b.Lock, b.Kind = info.Slot, info.Object, s.plain(&info, epoch)
			b.Unsure = b.Kind == ""
			return b, !b.Unsure
		}
		if b.At, b.Lock = info.Slot, info.Object; info.Condition {
			b.Kind = snapshot.MonitorWait
		}
		if class != nil && info.Condition && waits.OfSemaphore(class) {
			b.Kind = snapshot.SemaphoreWait
		}
	} else {
		blocking, ok := p.Managed.Locks.Blocked(s.Walk.Info.Address, s.Walk.Stack)
		if !ok {
			return b, false
		}
		at, _ := s.Walk.Stack.Uint64(field.Addr)
		if b.At, b.Lock = arch.Addr(at), blocking.Lock; blocking.Wait {
			b.Kind = snapshot.MonitorWait
		}
		class = p.WaitReader().Class(blocking)
	}
	if class != nil && b.Kind != snapshot.SemaphoreWait && s.Rests() {
		b.Type = class.Display
	}
	return b, true
}

// Waits returns the kind of a thread's wait, by the thread's managed objects; "": the thread does not wait, or the
// kind is not certain. The thread has just been walked.
func (s *Suspension) Waits() snapshot.WaitKind {
	p := s.Process
	if p.Managed == nil || p.Managed.Locks == nil || s.Walk.Info.Address == 0 || s.Capture.Busy() {
		return ""
	}
	kind := p.WaitReader().Kind(&s.Walk.Info)
	if !s.Rests() {
		return ""
	}
	return kind
}

// explain adds the wait and the holds of a thread that has just been walked.
func (s *visit) explain(st *snapshot.Thread) {
	p := s.g
	if len(st.Frames) == 0 {
		return
	}
	if p.Managed != nil && p.Managed.Objects != nil && s.Walk.Info.Address != 0 {
		subject := waits.Subject{
			Frames: st.Frames, Stack: s.Walk.Stack, Thread: s.Walk.Info, Blocked: st.State != stateRunning,
		}
		if s.Capture.Proof != "" {
			subject.Still = func() bool { return p.moments.Rests(s.Thread.OSThreadID, s.Capture.Proof) }
			subject.Again = func() *target.Stack { return s.again(st.Frames) }
		}
		if s.restsOn = nil; st.State != stateRunning {
			subject.Frames = p.WithPrimitive(st.Frames, p.stack.calls)
			st.Wait = p.WaitReader().Wait(&subject)
			subject.Frames = st.Frames
			s.queue = p.WaitReader().Queue()
			if w := st.Wait; w != nil && w.Certain && w.Owner != nil && (exclusive[w.Kind] || isMutex(w)) {
				s.restsOn = p.WaitReader().RestsOn()
			}
			s.namedMutex(st)
		}
		delete(p.epochs, st.OSThreadID)
		p.noteHeap(st.OSThreadID, st.Wait != nil && st.Wait.Object != 0)
		st.Holds = p.WaitReader().Holds(&subject)
		s.nameHeld(st.Holds)
		p.noteHeap(st.OSThreadID, len(st.Holds) > 0)
		s.noteRuns(&subject)
		p.noteHeap(st.OSThreadID, len(p.runs[st.OSThreadID]) > 0)
	}
	s.spins(st)
	switch idle := st.Idle(); {
	case st.State == stateRunning:
	case st.Waits() && idle != "" && idle != snapshot.IdleHost && idle != snapshot.IdleMain:
		st.Wait = &snapshot.Wait{Kind: snapshot.WaitIdle, Certain: true}
	case st.Wait == nil:
		if st.Wait = s.ioWait(st.Frames); st.Wait == nil && st.Waits() && p.inRuntime(st.Frames) {
			st.Wait = s.runtimeWait()
		}
	}
	s.timeout(st)
}

// spins explains the wait of a thread that enters a SpinLock. The thread may have a CPU.
func (s *Suspension) spins(st *snapshot.Thread) {
	p := s.Process
	if p.Managed == nil || p.Managed.Objects == nil || s.Walk.Info.Address == 0 {
		return
	}
	var registers []uint64
	for i := range s.Capture.Context.Regs {
		if v, ok := s.Capture.Context.Reg(uint8(i)); ok {
			registers = append(registers, v)
		}
	}
	subject := waits.Subject{Frames: st.Frames, Stack: s.Walk.Stack, Thread: s.Walk.Info}
	if w := p.WaitReader().Spins(&subject, registers); w != nil {
		st.Wait = w
	}
}

// inRuntime reports whether a thread has called the runtime's native code, and waits there.
func (p *Process) inRuntime(frames []snapshot.Frame) bool { return p.ownFrames(frames) > 0 }

// ownFrames counts the frames of the runtime's own code among the native frames of a thread's newest call.
func (p *Process) ownFrames(frames []snapshot.Frame) (n int) {
	if p.Found == nil || p.Found.Module == nil {
		return 0
	}
	for i := range frames {
		if f := &frames[i]; f.Kind != snapshot.Native || f.Tier != "" {
			break
		} else if f.Module == p.Found.Module.Name {
			n++
		}
	}
	return n
}

// addHolds adds the monitors that threads hold without a reference on the stack. The monitors are read after all
// stacks. So a hold is certain if the thread has not run since, unless another thread was seen as the holder.
func (g *gathering) addHolds() {
	if g.Managed == nil {
		return
	}
	g.moments.Renew()
	held, all := g.WaitReader().Monitors()
	g.out.HoldsPartial = !all && g.Managed.Locks != nil
	owners := ownersOf(g.out.Threads)
	for i := range g.out.Threads {
		t := &g.out.Threads[i]
		ns, err := g.from.NSTid(t.OSThreadID)
		if err != nil || t.ThreadID == 0 || len(held[ns]) == 0 {
			continue
		}
		still := g.moments.Still(t.OSThreadID)
		for _, h := range held[ns] {
			if k, ok := g.known[ns]; !ok || uint64(k.Address) != t.ThreadID {
				continue // the id is another thread's by now
			}
			if owner, ok := owners[h.Object]; !still || ok && owner != t.OSThreadID {
				h.Certain = false
			}
			t.Holds = g.withHold(t, h)
		}
	}
	g.addWanted(g.out)
}

// withHold adds a monitor to a thread's holds. A monitor with another address before is the same monitor if the lock
// is the same. A monitor without a lock before may be the same: a monitor gets a lock when another thread wants the
// monitor.
func (g *gathering) withHold(t *snapshot.Thread, h snapshot.Wait) []snapshot.Wait {
	moved := !g.unmoved(t.OSThreadID)
	for i := range t.Holds {
		o := &t.Holds[i]
		if o.Kind != h.Kind {
			continue
		}
		if o.Lock != 0 && o.Lock == h.Lock {
			o.Object = h.Object
			return t.Holds
		}
		if o.Lock == 0 && o.Object == h.Object {
			o.Lock = h.Lock
			return t.Holds
		}
		if o.Lock == 0 && o.Type == h.Type && moved && !g.WaitReader().HeldAt(o.Object, t.ManagedThreadID) {
			*o = h
			return t.Holds
		}
	}
	return append(t.Holds, h)
}

// ownersOf returns the threads that were seen as holders of monitors, by the monitors' objects.
func ownersOf(threads []snapshot.Thread) map[uint64]int {
	owners := map[uint64]int{}
	for i := range threads {
		if w := threads[i].Wait; w != nil && w.Kind == snapshot.MonitorEnter && w.Certain && w.Owner != nil {
			owners[w.Object] = w.Owner.OSThreadID
		}
	}
	return owners
}

// WaitReader returns the reader that explains waits.
func (p *Process) WaitReader() *waits.Reader {
	if p.waits == nil {
		p.waits = &waits.Reader{Managed: p.Managed, Runtime: p.Runtime, People: people{p}}
		if p.moments.Changes() {
			p.waits.Live, p.waits.Renew = p.Live, p.Engine.Cache.Invalidate
			p.Managed.Seen.Directly(p.Live)
		}
		if p.RunningProcess() != nil {
			p.waits.File = p.DescribeIO
		}
	}
	return p.waits
}

// people are the threads of a process.
type people struct{ p *Process }

// refs are the names of threads, by the id in the target's namespace, as of the latest list.
type refs struct {
	known   map[int]*snapshot.ThreadRef
	host    map[int]int // the ids in this process's namespace
	managed map[int]int // the ids in the target's namespace, by managed id; nil: not needed yet
	at      map[arch.Addr]int
	lists   int  // how often threads were listed
	failed  bool // the runtime's threads could not be listed

	descriptors *descriptors.Reader // nil: not needed yet
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

// Bounds of how often threads are listed in a snapshot to find new threads: few threads are listed more often.
const (
	minLists  = 16
	maxLists  = 256
	maxListed = 1 << 14 // threads, in all lists together
)

// mayList reports whether threads may be listed once more.
func (o people) mayList() bool {
	return o.p.refs.lists < max(minLists, min(maxLists, maxListed/max(1, len(o.p.known))))
}

// Renew implements waits.People.
func (o people) Renew() bool {
	r := &o.p.refs
	if !o.p.moments.Changes() || !o.mayList() {
		return false
	}
	r.lists++
	o.p.Engine.Cache.Invalidate()
	list, err := o.p.Managed.Threads.List()
	if err != nil {
		r.failed = true
		return false
	}
	o.p.take(list)
	*r = refs{lists: r.lists, descriptors: r.descriptors}
	return true
}

// hostID returns the id of a thread in this process's namespace; 0: the thread has ended. false: not known.
func (o people) hostID(id int) (tid int, known bool) {
	r := &o.p.refs
	if tid, ok := r.host[id]; ok {
		return tid, true
	}
	if _, err := o.p.from.Thread(id); err == nil {
		if ns, err := o.p.from.NSTid(id); err == nil && ns == id {
			return id, true // the usual case: one namespace
		}
	}
	if o.oneNamespace() {
		return 0, true
	}
	if r.host != nil && !o.mayList() {
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
	return r.host[id], true
}

// oneNamespace reports whether this process and the target see the same ids of threads.
func (o people) oneNamespace() bool {
	ns, err := o.p.from.NSTid(o.p.from.PID())
	return err == nil && ns == o.p.from.PID()
}

// All implements waits.People. A list without a thread may be too old if no more lists are made.
func (o people) All() bool {
	return o.p.unlisted == nil && !o.p.refs.failed && (!o.p.moments.Changes() || o.mayList())
}

// Other implements waits.People.
func (o people) Other(osID int) *snapshot.ThreadRef {
	tid, known := o.hostID(osID)
	if !known {
		return nil
	}
	return &snapshot.ThreadRef{OSThreadID: tid}
}

// Ref implements waits.People.
func (o people) Ref(k *thread.Thread) *snapshot.ThreadRef {
	r := &o.p.refs
	if ref := r.known[k.OSID]; ref != nil {
		return ref
	}
	if r.known == nil {
		r.known = map[int]*snapshot.ThreadRef{}
	}
	tid, known := o.hostID(k.OSID)
	if !known {
		return nil
	}
	ref := &snapshot.ThreadRef{OSThreadID: tid, ManagedThreadID: k.ManagedID}
	if tid != 0 {
		if t, ok := o.p.Describe(tid); ok {
			ref.Name = t.Name
		}
	}
	r.known[k.OSID] = ref
	return ref
}

// runtimeWait explains a wait in the runtime's native code.
func (s *Suspension) runtimeWait() *snapshot.Wait {
	if s.Process.Runtime != nil && s.Walk.Info.Address != 0 {
		if w := s.Process.WaitReader().Constructor(s.Capture.Head, s.Walk.Info.Address); w != nil {
			return w
		}
	}
	return &snapshot.Wait{Kind: snapshot.WaitRuntime, Certain: true}
}
