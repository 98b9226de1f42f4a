package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/link"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// awaiters finds the methods that await the async methods of stacks.
type awaiters struct {
	codes   map[arch.Addr]*awaits.Code // by instruction pointer, of code that stays
	steps   map[stepKey]int32          // locations
	sites   awaits.Asyncs              // of the last walk
	at      []awaitsAt                 // the awaiting methods that were found for that walk
	sampled looks                      // of samples, in the whole recording
	events  looks                      // of events, in the whole recording
	reused  int                        // methods with a box that may serve another call by now
	running fleeting                   // of CPU samples
	chains  *link.Chains               // the agent's copies; nil: there is no agent, or they are not wanted
	methods suspendable
}

// looks count how often awaiting methods were looked for.
type looks struct {
	all     int
	missing int // looks without a proved result
}

func (l *looks) add(o looks) { l.all, l.missing = l.all+o.all, l.missing+o.missing }

func (l *looks) since(before looks) looks {
	return looks{l.all - before.all, l.missing - before.missing}
}

// awaitsAt are the methods that await an async method of a stack.
type awaitsAt struct {
	below     int // the locations stand before this index in the stack
	locations []int32
	together  int // so many locations, from the first on, are suspended with the method above them, in one task
}

// stepKey is a place where a method awaits another method.
type stepKey struct {
	table arch.Addr // of the state machine; 0: a method of .NET
	state int32
	label string
}

func newAwaiters() awaiters {
	return awaiters{
		codes: map[arch.Addr]*awaits.Code{}, steps: map[stepKey]int32{},
		methods: suspendable{map[clrsnap.FunctionID]awaits.Suspendable{}, map[[2]clrsnap.FunctionID]bool{}},
	}
}

func (a *awaiters) forget() {
	clear(a.codes)
	clear(a.steps)
	clear(a.methods.kinds)
	clear(a.methods.taken)
}

func (a *awaiters) begin() {
	a.sites.Begin()
	a.at = a.at[:0]
}

// know notes the meaning of a named managed frame's code for async methods.
func (a *awaiters) know(p *session.Process, fr *walk.Frame, n *naming.NamedFrame) {
	if !p.Options.Async || fr.Code.Collectible || len(a.codes) >= maxFrameKeys {
		return
	}
	if c, ok := p.AsyncCode(fr, n); ok {
		a.codes[fr.IP()] = &c
		if a.chains != nil {
			a.chains.Code(fr.IP(), &c)
		}
	}
}

// follow has the agent of the process copy the chains from async methods to the awaiting methods.
func (a *awaiters) follow(p *session.Process, l *link.Link) {
	if !p.Options.Async || p.Runtime == nil {
		return
	}
	if a.chains = l.Chains(p); a.chains == nil {
		return
	}
	for ip, c := range a.codes {
		a.chains.Code(ip, c)
	}
}

// frame notes a frame of a walk. For code that can be unloaded, the method's name tells the code's
// meaning.
func (a *awaiters) frame(fr *walk.Frame, index int, note *frameNote, method func() string) {
	var code *awaits.Code
	switch {
	case fr.Kind == walk.Managed && fr.Code.Collectible:
		code = awaits.StubCode(method())
	case note.known():
		code = note.async
	case fr.Kind == walk.Managed:
		code = a.codes[fr.IP()]
	}
	a.sites.Frame(fr, code, index)
}

// await finds the methods that await the async methods of the stack just walked. rests reports whether
// the thread has not run since; nil: the thread may have run.
func (f *frameTable) await(rests func() bool) {
	read := func(s *awaits.Site) (awaits.Chain, error) {
		return f.p.Awaiting(s, f.sps[s.Below], f.ips[s.Below], rests)
	}
	f.awaitWalked(read)
}

// awaitWalked is awaitEach for the stack just walked.
func (f *frameTable) awaitWalked(read func(*awaits.Site) (awaits.Chain, error)) {
	f.awaitEach(min(len(f.stack), len(f.sps)), &f.awaits.sampled, read)
}

// awaitEach reads the methods that await the async methods of the last stack. frames is how many
// frames are known.
func (f *frameTable) awaitEach(frames int, count *looks,
	read func(*awaits.Site) (awaits.Chain, error)) {
	a := &f.awaits
	for i := range a.sites.Sites {
		site := &a.sites.Sites[i]
		n := len(a.at)
		if site.Below >= frames || n > 0 && a.at[n-1].below == site.Below {
			continue
		}
		chain, err := read(site)
		switch next := i + 1; {
		case errors.Is(err, awaits.ErrNeverSuspended):
			continue
		case err != nil && next < len(a.sites.Sites) && a.sites.Sites[next].Below == site.Below:
			continue // the box of the same method may tell
		case errors.Is(err, awaits.ErrOver) && len(a.at) > 0:
			continue // the method is over: its awaiter runs inside its frame, and is in the stack
		case errors.Is(err, awaits.ErrReused):
			a.reused++
			continue
		}
		if count.all++; err != nil {
			count.missing++
			continue
		}
		at := awaitsAt{below: site.Below, locations: make([]int32, len(chain.Steps))}
		inner := site.Inner(func() string { return f.methodAt(site.Below - 1) })
		for k := range chain.Steps {
			at.locations[k] = f.step(&chain.Steps[k], inner)
			inner = &chain.Steps[k]
		}
		at.together = together(chain.Steps)
		a.at = append(a.at, at)
	}
}

// together counts the first steps that the runtime has suspended in one task.
func together(steps []awaits.Step) (n int) {
	for n < len(steps) && steps[n].Resumption != nil && steps[n].Task() == steps[0].Task() {
		n++
	}
	return n
}

// methodAt is the name of the method of a frame of the last stack.
func (f *frameTable) methodAt(at int) string {
	_, of := f.b.At(f.stack[at])
	return of.Method
}

// fleeting decides whether to look at async methods that ran a moment ago.
type fleeting struct {
	looks
	left int // samples that were left out
}

// When looking at each sample is not worth while. In a web server that answers in some microseconds
// hardly any method is still there, and each look takes a dozen system calls.
const (
	fleetingAfter = 200 // methods that were looked at
	fleetingFrom  = 5   // of so many methods at most one is still there
	fleetingTry   = 8   // of so many samples one is looked at
)

// wanted reports whether a sample is to be looked at.
func (f *fleeting) wanted() bool {
	if f.all < fleetingAfter || f.missing*fleetingFrom < f.all*(fleetingFrom-1) {
		return true
	}
	f.left++
	return f.left%fleetingTry == 0
}

// seen counts looks; earlier ones count for less and less.
func (f *fleeting) seen(l looks) {
	if f.add(l); f.all >= 2*fleetingAfter {
		f.all, f.missing = f.all/2, f.missing/2
	}
}

// allOver reports whether all async methods of the stack just walked have ended, as they mostly have.
// If the outermost method has ended, all have.
func (f *frameTable) allOver() bool {
	for _, site := range slices.Backward(f.awaits.sites.Sites) {
		if at := site.Below; at < len(f.sps) {
			return !f.p.StillCalled(f.sps[at], f.ips[at])
		}
	}
	return false
}

// awaitRunning is await for the stack of a CPU sample.
func (f *frameTable) awaitRunning() {
	a := &f.awaits
	if len(a.sites.Sites) == 0 || !a.running.wanted() {
		return
	}
	before := a.sampled
	if f.allOver() {
		f.awaitWalked(func(*awaits.Site) (c awaits.Chain, err error) { return c, awaits.ErrOver })
	} else {
		f.await(nil)
	}
	a.running.seen(a.sampled.since(before))
}

// awaitReported finds the methods that await the async methods of an event's stack: the agent has
// copied the chains.
func (f *frameTable) awaitReported(r *agent.Record) {
	a := &f.awaits
	a.begin()
	if a.chains == nil {
		return
	}
	arguments := a.chains.Read(r)
	for i := range r.Frames {
		ip := arch.Addr(r.Frames[i].IP)
		if a.sites.Reported(a.codes[ip], i, arguments[i]) && arguments[i] == 0 && a.chains.Follows(ip) {
			a.events.add(looks{1, 1})
		}
	}
	f.awaitEach(len(f.stack), &a.events, a.chains.Awaiting)
}

// step returns the location of a method that awaits inner. inner is nil if the awaited thing is not
// known to be a method.
func (f *frameTable) step(s, inner *awaits.Step) int32 {
	key := stepKey{label: s.Label}
	passing := s.Resumption != nil // its code may be replaced
	if s.Box != nil {
		key = stepKey{table: s.Box.Machine.Table, state: s.Box.State}
		passing = s.Box.Machine.Passing
	}
	if l, ok := f.awaits.steps[key]; ok && !passing {
		return l
	}
	n := f.p.AsyncFrame(s)
	l := profile.Location{Function: f.b.Function(profile.Function{
		Kind: n.Kind, Method: n.Method, Display: n.Display, Short: n.Short, Signature: n.Signature, Module: n.Module,
		Owner: n.Owner,
	})}
	if place, ok := f.p.AwaitPlace(s, inner); ok {
		f.places.placeAt(&place, &l)
	}
	at := f.b.Location(l)
	if !passing && len(f.awaits.steps) < maxFrameKeys {
		f.awaits.steps[key] = at
	}
	return at
}

// appendStack appends the locations of the last stack, leaf first, with the methods that await its
// async methods.
func (f *frameTable) appendStack(out []int32) []int32 {
	from := 0
	for i := range f.awaits.at {
		at := &f.awaits.at[i]
		out = append(append(out, f.stack[from:at.below]...), at.locations...)
		from = at.below
	}
	return append(out, f.stack[from:]...)
}

// maxHoldsOfBox bounds the places on a stack with the address of one box.
const maxHoldsOfBox = 16

// holds adds to the return addresses of a captured stack the places with the boxes of its async
// methods: a thread with other boxes there is not at the same place.
func (a *awaiters) holds(returns []returnSlot, s *session.Suspension, sp arch.Addr, sps []arch.Addr) []returnSlot {
	if len(a.sites.Sites) == 0 {
		return returns
	}
	stack := &s.Capture.Stack
	for i := range a.sites.Sites {
		site := &a.sites.Sites[i]
		if site.Below >= len(sps) || site.Argument == 0 {
			continue
		}
		for at, n := sp, 0; at+8 <= sps[site.Below] && n < maxHoldsOfBox; at += 8 {
			d := uint64(at - stack.Base)
			if d+8 > uint64(len(stack.Data)) {
				break
			}
			if v := arch.Addr(binary.LittleEndian.Uint64(stack.Data[d:])); v == site.Argument {
				returns = append(returns, returnSlot{at, v})
				n++
			}
		}
	}
	slices.SortFunc(returns, func(x, y returnSlot) int { return cmp.Compare(x.at, y.at) })
	return returns
}

// promptness decides whether samples are read as soon as they are taken. The chain from an async
// method can be read only as long as the method runs. But each wake takes a CPU from the target, so it
// must be worth while.
type promptness struct {
	on, ended bool
	before    looks // before it was on
}

// When samples begin to be read at once, and when that ends. In a web server that answers in some
// microseconds most methods have ended even then.
const (
	promptAfter = 20  // methods that were looked at
	promptFrom  = 10  // of so many methods one is missing, or more
	promptTried = 100 // methods that were looked at as soon as they were sampled
	promptWorth = 2   // of so many methods at most one is missing
)

// wanted reports whether samples should be read at once from now on.
func (p *promptness) wanted(all []*recordedProcess) bool {
	if p.ended {
		return false
	}
	var now looks
	for _, rp := range all {
		now.add(rp.frames.awaits.sampled)
	}
	if !p.on {
		p.on = now.all >= promptAfter && now.missing*promptFrom > now.all
		p.before = now
		return p.on
	}
	if tried := now.since(p.before); tried.all >= promptTried && tried.missing*promptWorth > tried.all {
		p.on, p.ended = false, true
	}
	return p.on
}

// suspendable is the known information about methods that the runtime may suspend.
type suspendable struct {
	kinds map[clrsnap.FunctionID]awaits.Suspendable
	taken map[[2]clrsnap.FunctionID]bool // the first method takes the task of the second method
}
