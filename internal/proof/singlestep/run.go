package singlestep

import (
	"errors"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"

	"golang.org/x/sys/unix"
)

// runner steps one thread and judges the walks.
type runner struct {
	p    *live.Process
	eng  *engine.Engine
	rep  *Report
	tr   *tracer
	view *view
	sh   shadow

	got      []seen
	collect  func(*walk.Frame) bool
	thread   walk.Thread
	waited   int // instructions since the first of foretold
	objects  int // steps until the runtime's threads are listed again
	held     []heldWalk
	foretold []heldWalk // by the call frame information of longjmp
	name     string
	folding  folding
	folds    int // instructions since the beginning
	miss     func(*Miss)
	deadline time.Time
	corpus   *Corpus
	samples  []*sample // for the corpus
}

// heldWalk is a walk whose truth is known a few instructions later.
type heldWalk struct {
	t   truth
	got []seen
	res walk.Result
	key string
	s   *sample // of the same moment, for the corpus
}

// Miss is a walk that was not equal.
type Miss struct {
	verdict Verdict
	key     string // kind of miss: the same for every thread and process
	truth   *truth
	got     []seen
	res     walk.Result
	r       *runner
	what    string // the kind of walk; empty: raw
	late    bool   // the thread has gone on since
}

func newRunner(p *live.Process, e *engine.Engine, tr *tracer, rep *Report, name string) *runner {
	r := &runner{p: p, eng: e, rep: rep, tr: tr, view: newView(p, e.Runtime.Threads.HeadLen()), name: name}
	r.collect = func(f *walk.Frame) bool {
		r.got = append(r.got, see(f, e.Arch.SP))
		return true
	}
	return r
}

// begin finds a moment to begin with: a moment whose existing frames can be
// taken over. fresh is a thread that has not executed anything.
func (r *runner) begin(fresh bool) error {
	if r.findObject(); fresh {
		return r.view.read(&r.tr.regs) // there is no caller
	}
	const tries, apart = 500, 400
	why := errors.New("the thread ended")
	for range tries {
		if err := r.view.read(&r.tr.regs); err != nil {
			return err
		}
		if why = r.takeBase(); why == nil {
			return nil
		}
		for range apart {
			if ev, err := r.skip(); err != nil || ev == ended || ev == blocked {
				return errors.Join(err, why)
			}
		}
	}
	return why
}

// skip executes an instruction without looking at the stack.
func (r *runner) skip() (event, error) {
	if err := r.view.read(&r.tr.regs); err != nil {
		return ended, err
	}
	return r.execute(classify(r.view.code[:]))
}

// execute is a step that leaves no trace of us in the thread's memory.
func (r *runner) execute(in insn) (event, error) {
	sp := r.tr.regs.Rsp
	ev, err := r.tr.step(in)
	if err == nil && ev == stepped && in.class == pushFlags && r.tr.regs.Rsp == sp-8 {
		err = r.tr.hideTrapFlag()
	}
	return ev, err
}

// takeBase takes a walk's frames as the truth, if the return addresses are in
// place.
func (r *runner) takeBase() error {
	r.sh = shadow{}
	if res := r.walk(); !res.Complete {
		return res.Err
	}
	for i := len(r.got) - 1; i > 0; i-- {
		g := &r.got[i]
		f := frame{ip: g.ip, sp: g.sp, stack: r.view.stackOf(g.sp), origin: base, exact: g.exact}
		if ip, ok := r.view.word(f.slot()); !g.exact && (!ok || ip != f.ip) {
			return fmt.Errorf("the return address of frame %d, %#x, is not in its place", i, g.ip)
		}
		r.sh.push(f)
	}
	r.sh.count.baseFrames = len(r.sh.frames)
	return nil
}

// findObject looks for the thread among the runtime's threads.
func (r *runner) findObject() {
	const interval = 256
	if r.objects--; r.objects > 0 {
		return
	}
	r.objects = interval
	r.eng.Begin()
	list, err := r.eng.Runtime.Threads.List()
	if err != nil {
		return // the list changes during the read: next time
	}
	r.view.object = 0
	for i := range list {
		if list[i].OSID == r.tr.tid && list[i].Alive() {
			r.view.object = list[i].Address
		}
	}
}

// run executes at most n instructions, and returns the number of executed instructions.
func (r *runner) run(n int) (done int, err error) {
	before := r.tr.regs
	for done < n || len(r.held) > 0 || len(r.foretold) > 0 { // judge walks that still wait for their truth
		code := r.view.code
		in := classify(code[:])
		ev, err := r.execute(in)
		if err != nil {
			return done, err
		}
		switch {
		case ev == ended:
			r.rep.Ended++
			return done, nil
		case ev == blocked:
			r.rep.Blocked++
			return done, nil
		case done%4096 == 0 && time.Now().After(r.deadline):
			return done, nil
		}
		if err := r.view.read(&r.tr.regs); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return done, nil
			}
			return done, err
		}
		if ev == stepped && r.tr.regs.Rip == before.Rip && r.tr.regs.Rsp == before.Rsp && in.class != call {
			// One turn of an unfinished repeated string instruction.
			before = r.tr.regs
			r.rep.Repeats++
			continue
		}
		t := transition{in: in, before: &before, after: &r.tr.regs, delivered: r.tr.delivered, code: code}
		r.observe(&t)
		before = r.tr.regs
		done++
	}
	return done, nil
}

// observe updates the truth and compares.
func (r *runner) observe(t *transition) {
	leaving, before := r.sh.leaving, r.sh.count
	r.sh.update(t, r.view)
	if leaving && !r.sh.leaving {
		r.release(t.after)
	}
	if t.in.class == intReturn { // where the runtime restores a whole context
		r.replaced(t.after)
	}
	if r.sh.count.jumps > before.jumps {
		r.rep.Jumps[r.rep.coverage.place(r, t.before.Rip, true)]++
	}
	r.arrive(t.after)
	r.findMissingObject()
	r.others()
	res := r.walk()
	tr := r.truth()
	r.rep.cover(r, t)
	if r.corpus != nil {
		r.learn(t, &before)
	}
	if r.sh.leaving {
		r.hold(tr, res, r.sample(t, &tr))
	} else if r.record(&tr, r.got, res) == equal {
		r.sample(t, &tr)
	}
}

// findMissingObject looks for the Thread object, which the runtime makes some time after a
// thread starts.
func (r *runner) findMissingObject() {
	if r.view.object == 0 {
		r.findObject()
	}
}

// others also copies the stack that a signal handler has left.
func (r *runner) others() {
	for i := len(r.sh.frames) - 1; i >= 0; i-- {
		if f := &r.sh.frames[i]; f.stack != r.view.current {
			r.view.also(f.stack, f.sp)
			return
		}
	}
}

func (r *runner) truth() truth {
	g := r.view.regs
	return truth{
		leaf:  frame{ip: g.Rip, sp: g.Rsp, exact: true, saved: preservedOf(g), savedKnown: true},
		below: r.sh.frames, moved: r.moved,
	}
}

// moved: both values are addresses in memory that can be the managed heap.
func (r *runner) moved(old, new uint64) bool {
	for _, v := range [2]uint64{old, new} {
		m := r.eng.Maps.Find(arch.Addr(v))
		if v%8 != 0 || m == nil || m.Path != "" || m.Perm&target.PermWrite == 0 || r.view.isStack(v) {
			return false
		}
	}
	r.rep.Moved++
	return true
}

// walk walks the thread in its present state.
func (r *runner) walk() walk.Result {
	r.eng.Begin()
	c := engine.Captured{OSID: r.tr.tid, Context: r.view.context(), Stack: &r.view.stack}
	if r.view.hasObj {
		c.Object, c.Head = r.view.object, r.view.head
		if at, n := r.eng.Runtime.Threads.TrackerRange(r.eng.Cache, c.Object); n > 0 {
			r.view.beside(at, n)
		}
	}
	r.thread, _ = r.eng.Thread(&c)
	return r.unwind()
}

func (r *runner) unwind() walk.Result {
	r.got = r.got[:0]
	ctx := r.thread.Context
	return r.eng.Walker.Unwind(&r.thread, &ctx, walk.ByUnwindInfo, r.collect)
}

// record judges a walk, after a second walk with the present modules.
func (r *runner) record(t *truth, got []seen, res walk.Result) Verdict {
	v := t.judge(got, res)
	if v == equal {
		r.rep.Verdicts[equal]++
		r.checkFold(t)
		return equal
	}
	if err := r.eng.UpdateModules(); err == nil {
		res = r.unwind()
		got = r.got
		v = t.judge(got, res)
	}
	if v == wrong && len(got) > 1 && res.Complete && len(r.foretold) < maxForetold {
		c := *t
		c.below = append([]frame(nil), t.below...)
		r.foretold = append(r.foretold, heldWalk{t: c, got: append([]seen(nil), got...), res: res})
		return v
	}
	r.rep.Verdicts[v]++
	if v != equal {
		r.missed(&Miss{verdict: v, truth: t, got: got, res: res, r: r}, "")
	}
	return v
}

// maxForetold bounds the instructions from which a walk may tell a jump.
const maxForetold = 16

// arrive judges walks that differed from the stack at their moment, but may have
// described the stack of the next moment: the C library's call frame information of
// longjmp, once the target's registers are loaded, calls the target longjmp's
// caller. If execution goes to the target in the next instructions, and the frames
// then equal the walk's frames, the walk was right.
func (r *runner) arrive(a *unix.PtraceRegs) {
	if len(r.foretold) == 0 {
		return
	}
	now := truth{leaf: frame{ip: a.Rip, sp: a.Rsp}, below: r.sh.frames}
	last := &r.foretold[len(r.foretold)-1]
	there := last.got[1].ip == a.Rip && last.got[1].sp == a.Rsp
	if r.waited++; !there && r.waited < 2*maxForetold {
		return
	}
	for i := range r.foretold {
		h := &r.foretold[i]
		if there && len(h.got) == now.len()+1 && now.same(h.got[1:]) {
			r.rep.Verdicts[equal]++
			r.sh.count.foretold++
			continue
		}
		r.rep.Verdicts[wrong]++
		r.missed(&Miss{verdict: wrong, truth: &h.t, got: h.got, res: h.res, r: r, late: true}, "")
	}
	r.foretold, r.waited = r.foretold[:0], 0
}

func (r *runner) missed(m *Miss, key string) {
	if m.key = key; key == "" {
		m.key = r.rep.describeMiss(m)
	}
	first := r.rep.addMiss(m)
	if first && r.miss != nil && !m.late {
		r.miss(m)
	}
}

// maxHeld bounds the instructions that a leaf takes to leave.
const maxHeld = 256

// hold keeps a walk until the leaf's destination is known.
func (r *runner) hold(t truth, res walk.Result, s *sample) {
	if len(r.held) == maxHeld {
		r.rep.Held += len(r.held)
		r.held, r.sh.leaving = r.held[:0], false
	}
	t.below = append([]frame(nil), t.below...)
	m := Miss{verdict: incomplete, truth: &t, got: r.got, res: res, r: r}
	r.held = append(r.held,
		heldWalk{t: t, got: append([]seen(nil), r.got...), res: res, key: r.rep.describeMiss(&m), s: s})
}

// release judges the held walks, now that the leaf has left: execution goes on in
// a frame that existed all the time.
func (r *runner) release(a *unix.PtraceRegs) {
	r.replaced(a)
	middle := &frame{ip: a.Rip, sp: a.Rsp, exact: true}
	for i := range r.held {
		h := &r.held[i]
		h.t.below, h.t.middle = append(h.t.below[:0], r.sh.frames...), middle
		v := h.t.judge(h.got, h.res)
		r.rep.Verdicts[v]++
		r.rep.Leaving[v]++
		if v == equal && h.s != nil {
			r.settle(h.s, &h.t)
		}
		if v != equal {
			r.missed(&Miss{verdict: v, truth: &h.t, got: h.got, res: h.res, r: r, late: true},
				fmt.Sprintf("while leaving: %s: %s", v, h.key))
		}
	}
	r.held = r.held[:0]
}

// replaced: on-stack replacement. A method that has called the patchpoint helper
// never gets control back: other code of the same method is entered in its place
// and takes the frame over, with the stack pointer at the slot of the helper's call
// (jithelpers.cpp, JIT_Patchpoint).
func (r *runner) replaced(a *unix.PtraceRegs) {
	f := r.sh.top()
	if f == nil || f.exact || f.slot() != a.Rsp {
		return
	}
	to, err1 := r.eng.Runtime.Code.Lookup(arch.Addr(a.Rip))
	from, err2 := r.eng.Runtime.Code.Lookup(arch.Addr(f.ip))
	if err1 != nil || err2 != nil || to.MethodDesc == 0 || to.MethodDesc != from.MethodDesc ||
		to.MethodStart == from.MethodStart {
		return
	}
	r.sh.frames = r.sh.frames[:len(r.sh.frames)-1]
	r.sh.count.replaced++
}

// finish lets the thread go.
func (r *runner) finish() error {
	r.rep.addCounts(&r.sh.count, r.tr)
	r.rep.Held += len(r.held) + len(r.foretold)
	err := r.tr.detach()
	if r.corpus != nil {
		r.corpus.add(r.samples)
	}
	return err
}
