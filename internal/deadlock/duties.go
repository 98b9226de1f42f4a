package deadlock

import (
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/permits"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// A duty is a likely obligation of a method that others wait for: to release a permit of a
// semaphore, or to complete a task.
type duty struct {
	kind   snapshot.LockKind // SemaphoreLock or CompletionLock
	object arch.Addr         // the semaphore, or the task
	typ    string
	field  string
	of     permits.MethodID
	count  int                // of a semaphore: the number of permits; 0: unknown
	all    []permits.MethodID // of a task: the methods that complete the task
}

// duties holds the duties of threads, as shown by the threads' frames.
type duties struct {
	p      *session.Process
	reader *permits.Reader
	sites  dutySites // of the latest walk
	by     map[int][]duty
	queued map[int]arch.Addr // by thread: the task by which the thread waits for a semaphore unknown from the stack
	unsure map[int]bool      // threads that hold, or may hold, a permit of an unknown semaphore

	leases map[int]awaitPlace // by thread: where the thread waits for a permit that another method releases

	met     map[permits.MethodID]bool // methods on any stack that hold permits somewhere
	inlined map[naming.CallKey][]permits.Inlined
}

func newDuties(p *session.Process) *duties {
	return &duties{
		p: p, reader: p.PermitReader(), by: map[int][]duty{}, queued: map[int]arch.Addr{}, unsure: map[int]bool{},
		met: map[permits.MethodID]bool{}, inlined: map[naming.CallKey][]permits.Inlined{}, leases: map[int]awaitPlace{},
	}
}

// dutySites are the frames of one stack with duties.
type dutySites struct {
	list  []dutySite
	blind bool       // the permits held by some method of the stack are unknown
	lease *leaseSite // nil: none
}

func (d *dutySites) begin() { d.list, d.blind, d.lease = d.list[:0], false, nil }

// dutySite is a frame with duties: the frame's method, and the values of the arguments and
// variables.
type dutySite struct {
	method   permits.MethodID
	held     []permits.Section
	promised []permits.Promise
	values   map[permits.Variable]arch.Addr
	table    arch.Addr // of a method of a struct: the MethodTable of the struct
}

// leaseSite is a frame that waits for a permit that another method releases.
type leaseSite struct {
	dutySite
	at uint32
}

const (
	maxDutySites = 64 // of one thread
	maxDuties    = 64
	maxMet       = 1 << 16
)

// frame records a frame of a method, and the methods inlined at the frame's call of the frame above.
func (d *duties) frame(f *walk.Frame, m *method.Method, assembly string, above []snapshot.Frame) {
	if assembly == coreLib || !d.reader.Matters(m.Module) {
		return
	}
	of := permits.MethodID{Module: m.Module, RID: m.RID}
	c, err := d.reader.Code(of.Module, of.RID)
	if err != nil {
		return
	}
	inlined, sites := d.inlinedAt(f, above), &d.sites
	if c.Empty() && len(inlined) == 0 {
		sites.waitsFor(d.p, f, m, c)
		return
	}
	holds := d.meets(of, c)
	il, next, _, ok := d.p.ILOffset(f.Code, f.Place())
	if !ok || len(sites.list) == maxDutySites {
		sites.blind = sites.blind || holds
		return
	}
	if len(inlined) > 0 {
		held, promised := d.reader.Inside(of, il, next, inlined)
		for i := range slices.Backward(inlined) {
			sites.add(d.p, f, m, inlined[i].Method, held[i], promised[i])
		}
	}
	if c.Empty() {
		return
	}
	held, promised := c.At(il, next)
	sites.add(d.p, f, m, of, held, promised)
}

// waitsFor notes a frame that waits for a permit that another method releases. The innermost frame counts.
func (d *dutySites) waitsFor(p *session.Process, f *walk.Frame, m *method.Method, c *permits.Code) {
	if d.lease != nil {
		return
	}
	il, next, _, ok := p.ILOffset(f.Code, f.Place())
	if !ok {
		return
	}
	at, ok := c.TakesWithin(il, next)
	if !ok {
		return
	}
	of := permits.MethodID{Module: m.Module, RID: m.RID}
	d.lease = &leaseSite{dutySite{method: of, values: map[permits.Variable]arch.Addr{}}, at}
	for _, v := range c.Takes(at) {
		if root, ok := permits.Root(v); ok {
			d.lease.read(p, f, m, root)
		}
	}
}

// meets records a method on a stack, and reports whether the method holds permits somewhere.
func (d *duties) meets(of permits.MethodID, c *permits.Code) bool {
	holds := holdsSome(c)
	if holds && len(d.met) < maxMet {
		d.met[of] = true
	}
	return holds
}

// add records the duties of a frame of a method m, or of a method inlined into the frame.
func (d *dutySites) add(
	p *session.Process, f *walk.Frame, m *method.Method, of permits.MethodID, held []permits.Section,
	promised []permits.Promise,
) {
	if len(held)+len(promised) == 0 || len(d.list) == maxDutySites {
		return
	}
	s := dutySite{method: of, held: held, promised: promised, values: map[permits.Variable]arch.Addr{}}
	if value, err := p.Runtime.Types.IsValueType(m.MethodTable); err == nil && value {
		s.table = m.MethodTable
	}
	for i := range s.held {
		if v, ok := permits.Root(s.held[i].Object); ok {
			s.read(p, f, m, v)
		}
	}
	for i := range s.promised {
		if v, ok := permits.Root(s.promised[i].Object); ok {
			s.read(p, f, m, v)
		}
	}
	d.list = append(d.list, s)
}

// inlinedAt returns the methods that were certainly inlined where a frame has called the frame
// above, outermost first. The list ends before the first method with an unknown IL offset.
func (d *duties) inlinedAt(f *walk.Frame, above []snapshot.Frame) (out []permits.Inlined) {
	if len(above) == 0 || !d.p.Proves() {
		return nil
	}
	call, ok := d.p.Call(f, 0, &above[len(above)-1])
	if !ok {
		return nil
	}
	key := call.Key()
	if known, ok := d.inlined[key]; ok {
		return known
	}
	found, _ := d.p.CertainAt(&call)
	for i := range found {
		in := &found[i]
		if !in.HasIL {
			break
		}
		of := permits.MethodID{Module: in.Module, RID: in.RID}
		if c, err := d.reader.Code(of.Module, of.RID); err == nil {
			d.meets(of, c)
		}
		out = append(out, permits.Inlined{Method: of, IL: in.IL})
	}
	if len(d.inlined) < maxMet {
		d.inlined[key] = out
	}
	return out
}

// read reads an argument or a variable of a frame of a method m, if the location is known.
func (s *dutySite) read(p *session.Process, f *walk.Frame, m *method.Method, v permits.Variable) {
	number := uint32(v.Number)
	if v.Local { // variables are counted behind the arguments
		n, err := p.Runtime.Names.Arguments(m.Module, m.RID)
		if err != nil {
			return
		}
		number += uint32(n)
	}
	if at, ok := p.VariableOf(f, number); ok {
		if value, _, ok := naming.ValueAt(f, &at); ok {
			s.values[v] = value
		}
	}
}

// roots returns the lookup of the frame's arguments and variables.
func (s *dutySite) roots(p *session.Process) permits.Roots {
	return func(v permits.Variable) (permits.Place, bool) {
		at, ok := s.values[v]
		if !ok {
			return permits.Place{}, false
		}
		if v == permits.This && s.table != 0 {
			class, err := p.Managed.Objects.Table(s.table)
			return permits.Place{At: at - structHeader, Class: class}, err == nil
		}
		class, err := p.Managed.Objects.Class(at)
		return permits.Place{At: at, Class: class}, err == nil
	}
}

// structHeader is the size of the MethodTable in front of an object's fields, in bytes. A struct
// has no MethodTable.
const structHeader = 8

// keep finds the objects of the duties of the thread just walked. queue is as in Observer.Walked.
func (d *duties) keep(tid int, queue arch.Addr) {
	if delete(d.queued, tid); queue != 0 {
		d.queued[tid] = queue
	}
	delete(d.by, tid)
	delete(d.unsure, tid)
	delete(d.leases, tid)
	sites := &d.sites
	if sites.lease != nil {
		d.leases[tid] = awaitPlace{sites.lease.method, sites.lease.at, sites.lease.roots(d.p)}
	}
	if sites.blind {
		d.unsure[tid] = true
	}
	if len(sites.list) == 0 {
		return
	}
	var out []duty
	unsure := false
	stands := d.p.Moments().Read(func() error {
		out, unsure = out[:0], false
		for i := range sites.list {
			s := &sites.list[i]
			list := dutiesAt(d.p, s.method, s.held, s.promised, s.roots(d.p))
			unsure = unsure || missesPermit(s.held, list)
			out = append(out, list...)
		}
		return nil
	}, nil)
	if unsure || !stands {
		d.unsure[tid] = true
	}
	if stands && len(out) > 0 {
		d.by[tid] = out[:min(len(out), maxDuties)]
	}
}

// missesPermit reports whether code is between taking and releasing a permit, but no semaphore is
// among the code's duties: the semaphore is unknown. An object to be disposed is rarely a
// semaphore.
func missesPermit(held []permits.Section, list []duty) bool {
	return slices.ContainsFunc(held, isPermit) &&
		!slices.ContainsFunc(list, func(d duty) bool { return d.kind == snapshot.SemaphoreLock })
}

func isPermit(s permits.Section) bool { return !s.Closes }

// holdsSome reports whether code holds permits somewhere, by its own calls of Wait and Release.
func holdsSome(c *permits.Code) bool { return !c.Empty() && slices.ContainsFunc(c.Sections, isPermit) }

// dutiesAt returns the duties of code with known arguments. Duties with unknown objects are left
// out.
func dutiesAt(p *session.Process, of permits.MethodID, held []permits.Section, promised []permits.Promise,
	roots permits.Roots) (
	out []duty,
) {
	for i := range held {
		places, err := p.PermitReader().Held(of.Module, &held[i], roots)
		if err != nil {
			continue
		}
		for _, at := range places {
			d := duty{kind: snapshot.SemaphoreLock, object: at.At, typ: at.Class.Display, of: of}
			if most, err := p.Managed.Objects.Uint32(at.At, at.Class, "m_maxCount"); err == nil && most < 1<<31-1 {
				d.count = int(most)
			}
			if !held[i].Closes {
				d.field = p.PermitReader().Name(of.Module, held[i].Object, roots)
				if use, err := p.PermitReader().Use(of.Module, held[i].Object, roots); err == nil && use.Count > 0 {
					d.count = use.Count
				}
			}
			out = append(out, d)
		}
	}
	for i := range promised {
		if d, err := promise(p, of, &promised[i], roots); err == nil {
			out = append(out, d)
		}
	}
	return out
}

var errShared = errors.New("others may complete it as well")

// promise returns the duty to complete a task, if all methods that complete the task are known.
func promise(p *session.Process, of permits.MethodID, s *permits.Promise, roots permits.Roots) (d duty, err error) {
	r := p.PermitReader()
	use, err := r.Use(of.Module, s.Object, roots)
	if err != nil {
		return d, err
	}
	if !use.Own {
		return d, errShared
	}
	for _, rid := range use.Completes {
		d.all = append(d.all, permits.MethodID{Module: of.Module, RID: rid})
	}
	if d.object, err = r.Task(of.Module, s, roots); err != nil {
		return d, err
	}
	d.of, d.kind, d.field = of, snapshot.CompletionLock, r.Name(of.Module, s.Object, roots)
	if c, err := p.Managed.Objects.Class(d.object); err == nil {
		d.typ = c.Display
	}
	return d, nil
}
