package session

import (
	"context"

	"clrsnap/internal/arch"
	"clrsnap/internal/source"
	"clrsnap/internal/walk"
	"clrsnap/profile"
	"clrsnap/symbols"
)

// late is what frames lack because their symbols are not on this machine. Symbols are fetched when all stacks
// have been taken: they would be of another moment otherwise.
type late struct {
	lines  map[lineKey]lateLine
	native map[lineKey]nativePlace
}

// lateLine is a place in managed code.
type lateLine struct {
	function    arch.Addr
	assembly    *source.Assembly
	method, il  uint32
	approximate bool
}

// addLine notes that a managed frame's line may be had later.
func (l *late) addLine(f *walk.Frame, a *source.Assembly, method, il uint32, approximate bool) {
	if len(l.lines) < maxLines {
		l.lines[lineKey{f.IP(), f.Exact}] = lateLine{f.Code.MethodDesc, a, method, il, approximate}
	}
}

// addNative notes that a native frame's name and line may be had later.
func (l *late) addNative(f *walk.Frame) {
	if len(l.native) < maxLines {
		l.native[lineKey{f.IP(), f.Exact}] = placeOf(f)
	}
}

// newLate returns what keeps such notes; nil: there is nothing to fetch from.
func newLate(from symbols.Source) *late {
	if from == nil {
		return nil
	}
	return &late{lines: map[lineKey]lateLine{}, native: map[lineKey]nativePlace{}}
}

// keyOf returns which of two notes a frame is about. An address may be a return address in one stack, and
// where the thread was interrupted in another: if both are known, only the first frame is certain.
func keyOf[V any](notes map[lineKey]V, ip arch.Addr, first bool) (lineKey, bool) {
	exact, call := lineKey{ip, true}, lineKey{ip, false}
	_, isExact := notes[exact]
	_, isCall := notes[call]
	switch {
	case isExact && (first || !isCall):
		return exact, true
	case isCall && !isExact:
		return call, true
	}
	return lineKey{}, false
}

// fetch gets the symbols that frames lack from Options.Source, and completes the frames of these threads.
func (p *Process) fetch(ctx context.Context, threads []profile.Thread) {
	if p.late == nil || len(p.late.lines) == 0 && len(p.late.native) == 0 {
		return
	}
	from := p.Options.Source
	if p.lines != nil {
		p.lines.finder.Fetch(ctx, from)
	}
	p.Engine.Modules.Fetch(ctx, from)
	if p.lines != nil {
		clear(p.lines.native)
	}
	for t := range threads {
		for i := range threads[t].Frames {
			p.complete(&threads[t].Frames[i], i == 0)
		}
	}
	clear(p.late.lines)
	clear(p.late.native)
}

// complete gives a frame what was fetched for it.
func (p *Process) complete(f *profile.Frame, first bool) {
	ip := arch.Addr(f.IP)
	if f.Kind == profile.Native {
		if key, ok := keyOf(p.late.native, ip, first); ok && f.Module != "" {
			p.nameNative(f, p.late.native[key])
		}
		return
	}
	key, ok := keyOf(p.late.lines, ip, first)
	if !ok || f.Line != nil {
		return
	}
	l := p.late.lines[key]
	if arch.Addr(f.FunctionID) != l.function {
		return
	}
	at, err := l.assembly.Line(l.method, l.il)
	if err == nil {
		f.Line = sourceLine(&at, l.approximate)
	}
}
