package record

import (
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// frameTable turns walked frames into locations of a recording. It names each instruction
// pointer once; in code that can be unloaded, once for each moment.
type frameTable struct {
	p          *session.Process
	b          *profile.Builder
	lasting    map[frameKey]int32
	passing    map[frameKey]int32
	newModules func() bool  // looks for new modules, at most every 10 or 100 ms; whether it found any
	modules    int          // engine.Engine.Changes when lasting was last good
	stack      []int32      // of the last walk
	ips        []arch.Addr  // likewise
	returns    []returnSlot // likewise
	depth      int          // of the last walk: the bytes of stack between its first and its last frame

	unproven []claim             // of the last walk
	seen     map[arch.Addr]sight // by the start of the method's code
	news     time.Duration       // when unknown code that can be unloaded was last met; 0: never
}

// returnSlot is a place on a stack, and the return address that is there.
type returnSlot struct{ at, ip arch.Addr }

type frameKey struct {
	ip      arch.Addr
	exact   bool
	managed bool
}

// maxFrameKeys bounds a frameTable: 40 bytes each, more or less.
const maxFrameKeys = 1 << 17

func newFrameTable(p *session.Process, b *profile.Builder, newModules func() bool) *frameTable {
	return &frameTable{
		p: p, b: b, newModules: newModules,
		lasting: map[frameKey]int32{}, passing: map[frameKey]int32{}, seen: map[arch.Addr]sight{},
	}
}

// callSlot is what a call pushes, in bytes.
const callSlot = 8

// begin starts a new moment.
func (f *frameTable) begin() {
	clear(f.passing)
	if n := f.p.Engine.Changes; n != f.modules || len(f.lasting) > maxFrameKeys {
		f.modules = n
		clear(f.lasting)
	}
}

// walk walks a captured thread, and puts the locations of its frames into f.stack, leaf
// first. taken is the time of the capture.
func (f *frameTable) walk(s *session.Suspension, taken time.Duration) walk.Result {
	f.stack, f.ips, f.returns, f.unproven, s.Managed = f.stack[:0], f.ips[:0], f.returns[:0], f.unproven[:0], false
	ctx := s.Walk.Context
	sp := &ctx.Regs[f.p.Arch.SP]
	first := *sp
	var unnamed error
	r := f.p.Walker.Walk(&s.Walk, &ctx, walk.ByUnwindInfo, func(fr *walk.Frame) bool {
		l, err := f.location(fr)
		if err != nil && unnamed == nil {
			unnamed = fmt.Errorf("%w: the method at %v cannot be named: %w", walk.ErrUnsafe, fr.IP(), err)
		}
		s.Managed = s.Managed || fr.Kind == walk.Managed
		f.stack, f.ips = append(f.stack, l), append(f.ips, fr.IP())
		if !fr.Exact {
			f.returns = append(f.returns, returnSlot{arch.Addr(fr.Context.Regs[f.p.Arch.SP]) - callSlot, fr.IP()})
		}
		return true
	})
	f.depth = int(*sp - first)
	if err := f.prove(taken); err != nil {
		unnamed = err
	}
	if r.Complete && unnamed != nil {
		return walk.Result{Err: unnamed}
	}
	return r
}

func (f *frameTable) location(fr *walk.Frame) (int32, error) {
	key := frameKey{fr.IP(), fr.Exact, fr.Kind == walk.Managed}
	unloadable := fr.Code != nil && fr.Code.Collectible
	table := f.lasting
	if unloadable || fr.Kind == walk.Stub {
		table = f.passing
	}
	if l, ok := table[key]; ok {
		return l, nil
	}
	l, err := f.resolve(fr)
	if err == nil {
		table[key] = l
	}
	if unloadable {
		f.unproven = append(f.unproven, claim{len(f.stack), key, fr.Code.MethodStart, fr.Code.MethodDesc, l})
	}
	return l, err
}

// claim is the name that was found for a frame in code that can be unloaded.
type claim struct {
	frame         int // in frameTable.stack
	key           frameKey
	start, method arch.Addr // of the method's code, and its MethodDesc
	location      int32
}

// sight is what was known of code that can be unloaded, at some time.
type sight struct {
	method   arch.Addr
	function int32
	at       time.Duration
}

// trustFor is how long code that a thread was seen in cannot be replaced. Before other code takes
// its place the thread must return, a garbage collection must run, the method must be finalised
// and another one compiled.
const trustFor = 5 * time.Millisecond

// maxSights bounds the entries of frameTable.seen.
const maxSights = 1 << 15

// prove removes the names of code that may have been unloaded, and replaced, between the moment
// of the stack and the moment when the name was read. A name is good if the code is still the
// same after the name was read, and if either the name was read within trustFor, or the code was
// the same before the moment of the stack.
func (f *frameTable) prove(taken time.Duration) error {
	if len(f.unproven) == 0 {
		return nil
	}
	f.p.Engine.Cache.Invalidate()
	f.p.Runtime.Begin()
	now := live.Monotonic()
	if len(f.seen) > maxSights {
		clear(f.seen)
	}
	var err error
	for _, c := range f.unproven {
		code, e := f.p.Runtime.Code.Lookup(c.key.ip)
		there := e == nil && code.MethodStart == c.start && code.MethodDesc == c.method
		is := sight{c.method, f.b.FunctionOf(c.location), now}
		was, known := f.seen[c.start]
		if there {
			f.seen[c.start] = is
		}
		same := known && was.method == is.method
		if !same {
			f.news = now
		}
		before := same && was.function == is.function && was.at <= taken
		if !there || now-taken > trustFor && !before {
			delete(f.passing, c.key)
			f.stack[c.frame] = f.unloaded()
			err = fmt.Errorf("%w: the code at %v has been unloaded, or may have been", walk.ErrUnsafe, c.key.ip)
		}
	}
	return err
}

// unloaded stands for code whose name is lost.
func (f *frameTable) unloaded() int32 {
	const name = "[unloaded code]"
	fn := profile.Function{Kind: profile.Managed, Display: name, Short: name}
	return f.b.Location(profile.Location{Function: f.b.Function(fn)})
}

func (f *frameTable) resolve(fr *walk.Frame) (int32, error) {
	n, err := f.p.Frame(fr)
	fn := profile.Function{
		Kind: n.Kind, Method: n.Method, Display: n.Display, Short: n.Short, Signature: n.Signature, Module: n.Module,
	}
	l := profile.Location{Offset: n.Offset, Tier: n.Tier}
	if fn.Display == "" {
		fn.Display = "[" + n.Module + "]"
		fn.Short = fn.Display
	}
	l.Function = f.b.Function(fn)
	return f.b.Location(l), err
}
