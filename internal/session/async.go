package session

import (
	"slices"
	"strings"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/source"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// An async method that goes on after an await is called by the thread pool, most often. Who awaits it is not on
// the stack, but on the heap (package async). Its frame, or that of the box which has called it, has the state
// machine or the box as its first argument.

// asyncSite is a frame that runs an async method.
type asyncSite struct {
	below int       // index of the frame above which what awaits the method is shown
	this  arch.Addr // the first argument of a frame
	table arch.Addr // of MoveNext: the type of the state machine; 0: this is the box
}

// AwaitingAt is what awaits an async method of a stack.
type AwaitingAt struct {
	SP     uint64 // of the frame above which it is shown
	Frames []profile.Frame
}

// awaitingByThread is what awaits the async methods of stacks, by the thread's id.
type awaitingByThread map[int][]AwaitingAt

func (a awaitingByThread) keep(tid int, list []AwaitingAt) {
	if len(list) > 0 {
		a[tid] = slices.Clone(list)
	}
}

// maxSites bounds the async methods of one stack that are looked at.
const maxAsyncSites = 32

// asyncs finds async methods in a walk.
type asyncs struct {
	sites  []asyncSite
	runner int // index of the first of the latest frames that are all of .NET's way to call a MoveNext; -1: none is
}

func (a *asyncs) reset() { a.sites, a.runner = a.sites[:0], -1 }

// boxMethods and contextMethods are the beginnings of the methods of .NET that call a MoveNext.
const (
	boxMethods     = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1."
	pooledMethods  = "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder`1+StateMachineBox`1."
	contextMethods = "System.Threading.ExecutionContext.Run"
)

// asyncFrame notes a frame that has just been named, if it runs an async method.
func (s *Suspension) asyncFrame(f *walk.Frame, fr *profile.Frame, index int) {
	p, a := s.Process, &s.Process.asyncs
	if !p.Options.Async || f.Kind != walk.Managed {
		return
	}
	box := fr.Module == coreLib && (strings.HasPrefix(fr.Method, boxMethods) || strings.HasPrefix(fr.Method, pooledMethods))
	runner := box || fr.Module == coreLib && strings.HasPrefix(fr.Method, contextMethods)
	if !runner {
		a.runner = -1
	} else if a.runner < 0 {
		a.runner = index
	}
	if len(a.sites) == maxAsyncSites || !box && !strings.HasSuffix(fr.Method, "MoveNext") {
		return
	}
	this, ok := p.firstArgument(f)
	if !ok {
		return
	}
	if box {
		a.sites = append(a.sites, asyncSite{below: a.runner, this: this})
	} else {
		a.sites = append(a.sites, asyncSite{below: index + 1, this: this, table: p.method.MethodTable})
	}
}

// firstArgument returns the first argument of the frame that has just been named, if the debug info says where it
// still is.
func (p *Process) firstArgument(f *walk.Frame) (arch.Addr, bool) {
	if f.Code.Funclet || f.Epilog() || f.IP() < f.Code.MethodStart {
		return 0, false
	}
	places, err := p.Runtime.IL.Variable(f.Code, ilmap.ThisVariable)
	if err != nil {
		return 0, false
	}
	at := uint64(f.IP() - f.Code.MethodStart)
	i := slices.IndexFunc(places, func(v ilmap.Variable) bool {
		return at < uint64(v.End) && (at > uint64(v.Start) || f.Exact && at == uint64(v.Start))
	})
	if i < 0 {
		return 0, false
	}
	v, ok := register(f, places[i].Register)
	if !ok || !places[i].OnStack {
		return v, ok && v != 0
	}
	word, ok := f.Word(v + arch.Addr(int64(places[i].Offset)))
	return arch.Addr(word), ok && word != 0
}

// awaiting returns what awaits the async methods of the thread that has just been walked.
func (s *Suspension) awaiting(frames []profile.Frame) []AwaitingAt {
	p := s.Process
	p.awaited = p.awaited[:0]
	if p.Runtime == nil {
		return nil
	}
	for i := range p.asyncs.sites {
		site := &p.asyncs.sites[i]
		if site.below >= len(frames) || p.room <= 0 {
			continue
		}
		sp := frames[site.below].SP
		if n := len(p.awaited); n > 0 && p.awaited[n-1].SP == sp {
			continue // by the frame above
		}
		chain, ok := s.chain(site, &frames[site.below])
		if !ok {
			continue
		}
		at := AwaitingAt{SP: sp, Frames: p.asyncFrames(&chain)}
		for k := range at.Frames {
			p.room -= asyncCost(&at.Frames[k])
		}
		p.awaited = append(p.awaited, at)
	}
	return p.awaited
}

// asyncCost is how many bytes a frame takes.
func asyncCost(f *profile.Frame) int {
	return int(unsafe.Sizeof(*f)) + len(f.Method) + len(f.Display) + len(f.Short) + len(f.Signature)
}

const maxChainTries = 4

// chain reads what awaits an async method. below is the frame that has called it. What is read counts only if it
// was all there at one moment, at which the call had not returned yet.
func (s *Suspension) chain(site *asyncSite, below *profile.Frame) (c async.Chain, ok bool) {
	p := s.Process
	seen := p.Runtime.Seen
	defer seen.End()
	read := func() (err error) {
		var box *async.Box
		if site.table == 0 {
			box, err = p.asyncReader().Box(site.this)
		} else {
			box, err = p.asyncReader().Of(site.this, site.table)
		}
		if err != nil {
			return err
		}
		c, err = p.asyncReader().Awaiting(box.Object)
		return err
	}
	if !p.from.changes() {
		return c, read() == nil
	}
	for range maxChainTries {
		settled := p.Runtime.Heap.Settled(p.from)
		seen.Begin()
		err := read()
		seen.End()
		if !s.called(below) {
			return c, false
		}
		if err == nil && settled && seen.Stands(p.from) && p.Runtime.Heap.Settled(p.from) && s.called(below) {
			return c, true
		}
		p.Engine.Cache.Invalidate()
	}
	return c, false
}

// called reports whether a call that a frame has made has not returned: the return address is still there.
func (s *Suspension) called(f *profile.Frame) bool {
	at, err := target.NewReader(s.Process.from).Uint64(arch.Addr(f.SP) - 8)
	return err == nil && at == f.IP
}

func (p *Process) asyncReader() *async.Reader {
	if p.async == nil {
		p.async = async.New(p.Runtime.Objects, p.Runtime.Names)
	}
	return p.async
}

// asyncFrames describes a chain as frames.
func (p *Process) asyncFrames(c *async.Chain) []profile.Frame {
	out := make([]profile.Frame, 0, len(c.Steps))
	for i := range c.Steps {
		out = append(out, p.asyncStep(&c.Steps[i]))
	}
	return out
}

// asyncStep describes a step of a chain.
func (p *Process) asyncStep(s *async.Step) profile.Frame {
	if s.Box == nil {
		return profile.Frame{
			Kind: profile.Async, Method: s.Label, Display: s.Label, Short: shortLabel(s.Label), Module: coreLib,
		}
	}
	m := s.Box.Machine
	return profile.Frame{
		Kind: profile.Async, Method: m.Exact, Display: m.Display, Short: m.Short, Signature: m.Signature,
		Module: m.Assembly, Owner: p.owner(m.Assembly, m.Image), Line: p.awaitLine(s.Box),
	}
}

// shortLabel cuts the namespace off the name of a method.
func shortLabel(name string) string {
	dot := strings.LastIndexByte(name, '.')
	return name[strings.LastIndexByte(name[:max(dot, 0)], '.')+1:]
}

// awaitLine returns the line of the await at which a method waits; nil: it is not known.
func (p *Process) awaitLine(b *async.Box) *profile.SourceLine {
	m := b.Machine
	if p.lines == nil || !b.HasState || b.State < 0 || m.Image == 0 {
		return nil
	}
	key := awaitKey{m.Module, m.RID, b.State}
	if l, ok := p.lines.awaits[key]; ok && !m.Passing {
		return l
	}
	l := p.findAwaitLine(b)
	if !m.Passing {
		if len(p.lines.awaits) >= maxLines {
			clear(p.lines.awaits)
		}
		p.lines.awaits[key] = l
	}
	return l
}

// awaitKey is an await of a method.
type awaitKey struct {
	module arch.Addr
	method uint32
	state  int32
}

func (p *Process) findAwaitLine(b *async.Box) *profile.SourceLine {
	m := b.Machine
	a, err := p.lines.finder.Assembly(&source.Module{
		Assembly: m.Assembly, Address: m.Module, Image: m.Image, Passing: m.Passing,
	})
	if err != nil {
		return nil
	}
	il, err := p.Runtime.Names.IL(m.Module, m.RID)
	if err != nil {
		return nil
	}
	stores, err := ecma335.StateStores(il)
	if err != nil {
		return nil
	}
	list := make([]source.StateStore, len(stores))
	for i, s := range stores {
		list[i] = source.StateStore{IL: s.At, State: s.State}
	}
	l, err := a.AwaitLine(m.RID, list, b.State)
	if err != nil {
		return nil
	}
	return sourceLine(&l, false)
}

// AddAwaiting adds to a stack, leaf first, the frames of what awaits its async methods.
func AddAwaiting(frames []profile.Frame, list []AwaitingAt) []profile.Frame {
	var out []profile.Frame
	from := 0
	for i := range list {
		at := slices.IndexFunc(frames[from:], func(f profile.Frame) bool { return f.SP >= list[i].SP })
		if at < 0 || len(list[i].Frames) == 0 {
			continue
		}
		out = append(append(out, frames[from:from+at]...), list[i].Frames...)
		from += at
	}
	if out == nil {
		return frames
	}
	return append(out, frames[from:]...)
}

// addAwaiting adds what awaits the async methods of captured stacks.
func addAwaiting(threads []profile.Thread, list awaitingByThread) {
	for i := range threads {
		t := &threads[i]
		t.Frames = AddAwaiting(t.Frames, list[t.OSThreadID])
	}
}
