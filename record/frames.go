package record

import (
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/walk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// frameTable turns walked frames into locations of a recording. It names each instruction pointer
// once, in shared generic code once for each instantiation, and in code that can be unloaded once for
// each moment.
type frameTable struct {
	p           *session.Process
	b           *profile.Builder
	lasting     map[frameKey]int32
	passing     map[frameKey]int32
	loose       map[frameKey]looseName
	newMappings func() bool  // see recordedProcess.newMappings
	modules     int          // engine.Engine.Changes when lasting was last good
	stack       []int32      // of the last walk
	ips         []arch.Addr  // of the last walk
	returns     []returnSlot // of the last walk
	sps         []arch.Addr  // of the last walk
	awaits      awaiters
	complete    []int32    // the stack of the last notification, with the methods that await its async methods
	context     returnSlot // of the latest frame's instantiation; at 0: it is not told
	notes       []frameNote
	at          arch.Context // of the present frame of a walk
	depth       int          // of the last walk: the bytes of stack between its first and its last frame

	taken    time.Duration       // the moment of the walked stack
	unproven []claim             // of the last walk
	seen     map[arch.Addr]sight // code that can be unloaded, by the start of the method
	unloads  unloads
	survey   survey
	news     time.Duration // when new code last needed a name soon; 0: never
	unknown  int           // stacks with profile.UnknownCode
	places   placer
	calls    map[callPair]naming.Call // of code that stays; the callee is missing where nothing can be said
}

// returnSlot is a place on a stack, and its content: a return address, or the context of a generic
// method.
type returnSlot struct{ at, ip arch.Addr }

type frameKey struct {
	ip      arch.Addr
	exact   bool
	managed bool
	callee  arch.Addr // MethodDesc of the P/Invoke around the frame, or of the P/Invoke that a native frame belongs to
	context arch.Addr // of shared generic code, if its instantiation is told; 0: not told
}

// maxFrameKeys bounds a frameTable: about 40 bytes for each key.
const maxFrameKeys = 1 << 17

func newFrameTable(p *session.Process, all *assemblies) *frameTable {
	f := &frameTable{
		p: p, b: all.b, places: newPlacer(p, all),
		lasting: map[frameKey]int32{}, passing: map[frameKey]int32{}, loose: map[frameKey]looseName{},
		seen: map[arch.Addr]sight{}, unloads: unloads{p: p}, calls: map[callPair]naming.Call{}, awaits: newAwaiters(),
	}
	f.unloads.look()
	return f
}

// callSlot is the size of the return address that a call pushes, in bytes.
const callSlot = 8

// begin starts a new moment.
func (f *frameTable) begin() {
	clear(f.passing)
	clear(f.loose)
	f.places.begin()
	if n := f.p.Engine.Changes; n != f.modules || len(f.lasting) > maxFrameKeys {
		f.modules = n
		clear(f.lasting)
		f.notes = f.notes[:0]
		f.awaits.forget()
	}
	if f.awaits.chains != nil {
		f.awaits.chains.Begin()
	}
}

// walk walks a captured thread, and puts the locations of its frames into f.stack, leaf first. taken
// is the time of the capture, or a little earlier.
func (f *frameTable) walk(s *session.Suspension, taken time.Duration) walk.Result {
	f.stack, f.ips, f.returns, f.unproven, s.Managed = f.stack[:0], f.ips[:0], f.returns[:0], f.unproven[:0], false
	f.taken, f.sps = taken, f.sps[:0]
	f.awaits.begin()
	f.awaits.sites.Of = s.Thread.ID
	f.at = s.Walk.Context
	sp := &f.at.Regs[f.p.Arch.SP]
	first := *sp
	var unnamed error
	var above arch.Addr // MethodDesc of the latest frame, if the frame is managed
	r := f.p.Walker.Walk(&s.Walk, &f.at, walk.ByUnwindInfo, func(fr *walk.Frame) bool {
		callee := fr.Callee()
		note := f.note(fr)
		l, err := f.location(fr, callee, note)
		if err != nil && unnamed == nil {
			unnamed = fmt.Errorf("%w: the method at %v cannot be named: %w", walk.ErrUnsafe, fr.IP(), err)
		}
		if n := len(f.stack); n > 0 && callee != 0 {
			f.stack[n-1] = f.called(f.stack[n-1], f.ips[n-1], fr, callee)
		}
		f.call(fr, l, above, note)
		above = 0
		if fr.Kind == walk.Managed {
			s.Managed, above = true, fr.Code.MethodDesc
		}
		f.awaits.frame(fr, len(f.stack), note, func() string { _, of := f.b.At(l); return of.Method })
		f.stack, f.ips = append(f.stack, l), append(f.ips, fr.IP())
		f.sps = append(f.sps, arch.Addr(fr.Context.Regs[f.p.Arch.SP]))
		if !fr.Exact {
			f.returns = append(f.returns, returnSlot{arch.Addr(fr.Context.Regs[f.p.Arch.SP]) - callSlot, fr.IP()})
		}
		if f.context.at != 0 {
			f.returns = append(f.returns, f.context)
		}
		return true
	})
	f.depth = int(*sp - first)
	f.prove()
	if r.Complete && unnamed != nil {
		return walk.Result{Err: unnamed}
	}
	return r
}

// frameNote is the known information about code that stays, at an instruction pointer: the content of
// a frameTable's maps, without a look into them. The note is valid if the location depends on nothing
// else.
type frameNote struct {
	ip       arch.Addr
	exact    bool
	valid    bool
	location int32
	async    *awaits.Code
	called   int32 // 1 + the location of the frame's callee, of the latest call in frameTable.calls
}

func (n *frameNote) known() bool { return n != nil && n.valid }

// note returns the note of a frame; nil: the frame has no note. The note is valid until the next call.
func (f *frameTable) note(fr *walk.Frame) *frameNote {
	at := fr.Note()
	if at == nil || fr.Kind == walk.Stub || fr.Code.Collectible {
		return nil
	}
	if i := int(*at); i > 0 && i <= len(f.notes) {
		// The note may be of another table, or of a time before a change.
		if n := &f.notes[i-1]; n.ip == fr.IP() && n.exact == fr.Exact {
			return n
		}
	}
	if len(f.notes) >= maxFrameKeys {
		return nil
	}
	f.notes = append(f.notes, frameNote{ip: fr.IP(), exact: fr.Exact})
	*at = uint32(len(f.notes))
	return &f.notes[len(f.notes)-1]
}

// location returns the location of a frame. callee is the MethodDesc of the P/Invoke around the frame;
// 0: there is no P/Invoke, or the P/Invoke is not known.
func (f *frameTable) location(fr *walk.Frame, callee arch.Addr, note *frameNote) (int32, error) {
	f.context = returnSlot{}
	if callee == 0 && note.known() {
		return note.location, nil
	}
	key := frameKey{ip: fr.IP(), exact: fr.Exact, managed: fr.Kind == walk.Managed, callee: callee}
	if fr.Code != nil && fr.Code.Collectible {
		return f.claimed(fr, key), nil
	}
	table := f.lasting
	if fr.Kind == walk.Stub {
		table = f.passing
	}
	if f.p.Options.ExactGenerics && len(table) < maxFrameKeys {
		if slot, context, ok := f.p.Context(fr); ok {
			key.context, f.context = context, returnSlot{slot, context}
		}
	}
	l, ok := table[key]
	if !ok {
		var err error
		if l, _, err = f.resolve(fr); err != nil {
			return l, err
		}
		table[key] = l
	}
	if callee == 0 && note != nil && !f.p.MayHaveContext(fr) {
		note.valid, note.location, note.async = true, l, f.awaits.codes[key.ip]
	}
	return l, nil
}

// called returns the location of the native frame at ip, whose location so far is l. callee names a
// function without a symbol: the caller, a managed frame, calls callee.
func (f *frameTable) called(l int32, ip arch.Addr, caller *walk.Frame, callee arch.Addr) int32 {
	at, fn := f.b.At(l)
	if fn.Kind != snapshot.Native || fn.Method != "" || at.Tier != "" {
		return l
	}
	table := f.lasting
	if caller.Code.Collectible {
		table = f.passing
	}
	key := frameKey{ip: ip, callee: callee}
	if named, ok := table[key]; ok {
		return named
	}
	n := snapshot.Frame{Kind: fn.Kind, Module: fn.Module, IP: uint64(ip)}
	if f.p.NameCallee(&n, caller) {
		fn.Method, fn.Display, fn.Short, at.Offset = n.Method, n.Display, n.Short, n.Offset
		at.Function = f.b.Function(fn)
		l = f.b.Location(at)
	}
	table[key] = l
	return l
}

func (f *frameTable) resolve(fr *walk.Frame) (int32, nameSum, error) {
	n, err := f.p.LastingFrame(fr)
	fn := profile.Function{
		Kind: n.Kind, Method: n.Method, Display: n.Display, Short: n.Short, Signature: n.Signature, Module: n.Module,
		Owner: n.Owner,
	}
	l := profile.Location{Offset: n.Offset, Tier: n.Tier}
	if fn.Display == "" {
		fn.Display = "[" + n.Module + "]"
		fn.Short = fn.Display
	}
	l.Function = f.b.Function(fn)
	if fr.Kind != walk.Managed || err != nil {
		f.places.native(fr, &l)
		return f.b.Location(l), 0, err
	}
	f.places.place(fr, &n, &l)
	f.awaits.know(f.p, fr, &n)
	return f.b.Location(l), f.sum(fr, &n), nil
}
