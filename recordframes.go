package clrsnap

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// frameTable turns walked frames into locations of a recording. A name is worked
// out once for each instruction pointer; that of code which can be unloaded, once
// for each moment.
type frameTable struct {
	p       *Process
	b       *profile.Builder
	lasting map[frameKey]int32
	passing map[frameKey]int32
	modules int         // of engine.ModuleChanges, when lasting was last good
	stack   []int32     // of the last walk
	ips     []arch.Addr // likewise
}

type frameKey struct {
	ip      arch.Addr
	exact   bool
	managed bool
}

// maxFrameKeys bounds a frameTable: 40 bytes each, more or less.
const maxFrameKeys = 1 << 17

func newFrameTable(p *Process, b *profile.Builder) *frameTable {
	return &frameTable{p: p, b: b, lasting: map[frameKey]int32{}, passing: map[frameKey]int32{}}
}

// begin starts a new moment.
func (f *frameTable) begin() {
	clear(f.passing)
	if n := f.p.eng.Changes; n != f.modules || len(f.lasting) > maxFrameKeys {
		f.modules = n
		clear(f.lasting)
	}
}

// walk walks a captured thread. The locations of its frames are in f.stack, leaf
// first.
func (f *frameTable) walk(s *Suspension) walk.Result {
	f.stack, f.ips, s.managed = f.stack[:0], f.ips[:0], false
	ctx := s.walk.Context
	var unnamed error
	r := f.p.walker.Walk(&s.walk, &ctx, walk.ByUnwindInfo, func(fr *walk.Frame) bool {
		l, err := f.location(fr)
		if err != nil && unnamed == nil {
			unnamed = fmt.Errorf("%w: the method at %v cannot be named: %w", walk.ErrUnsafe, fr.IP(), err)
		}
		s.managed = s.managed || fr.Kind == walk.Managed
		f.stack, f.ips = append(f.stack, l), append(f.ips, fr.IP())
		return true
	})
	if r.Complete && unnamed != nil {
		r = walk.Result{Err: unnamed}
	}
	return r
}

func (f *frameTable) location(fr *walk.Frame) (int32, error) {
	key := frameKey{fr.IP(), fr.Exact, fr.Kind == walk.Managed}
	table := f.lasting
	if fr.Code != nil && fr.Code.Collectible || fr.Kind == walk.Stub {
		table = f.passing
	}
	if l, ok := table[key]; ok {
		return l, nil
	}
	l, err := f.resolve(fr)
	if err == nil {
		table[key] = l
	}
	return l, err
}

func (f *frameTable) resolve(fr *walk.Frame) (int32, error) {
	n, err := f.p.frame(fr)
	fn := profile.Function{Kind: n.Kind, Method: n.Method, Display: n.Display, Short: n.Short, Signature: n.Signature, Module: n.Module}
	l := profile.Location{Offset: n.Offset, Tier: n.Tier}
	if fn.Display == "" {
		fn.Display = "[" + n.Module + "]"
		fn.Short = fn.Display
	}
	l.Function = f.b.Function(fn)
	return f.b.Location(l), err
}
