package naming

import (
	"cmp"
	"context"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/module"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// late is what frames lack because there are no symbols on this machine. Symbols are fetched after the capture of all
// stacks: stacks captured after a fetch would be of another moment.
type late struct {
	lines  []lateLine
	native map[walk.Place]nativePlace
}

// BeginLate begins to note missing symbols, if there is a source to fetch symbols from.
func (s *Stacks) BeginLate() {
	if s.options.Source != nil {
		s.late = &late{native: map[walk.Place]nativePlace{}}
	}
}

// EndLate forgets the noted places, if their symbols were not fetched.
func (s *Stacks) EndLate() {
	if s.late == nil {
		return
	}
	for i := range s.late.lines {
		if l := &s.late.lines[i]; s.lines.known[l.at] == l.line {
			delete(s.lines.known, l.at)
		}
	}
	s.late = nil
}

// add notes a line that may be fetched later, and returns the empty line; nil: there is no room.
func (l *late) add(n lateLine) *snapshot.SourceLine {
	if len(l.lines) >= maxLines {
		return nil
	}
	n.line = &snapshot.SourceLine{}
	l.lines = append(l.lines, n)
	return n.line
}

// addNative notes that a native frame's name and line may be fetched later.
func (l *late) addNative(f *walk.Frame) {
	if len(l.native) < maxLines {
		l.native[walk.Place{IP: f.IP(), Exact: f.Exact}] = placeOf(f)
	}
}

// modules are the modules of the noted native frames.
func (l *late) modules() (out []*module.Module) {
	for _, at := range l.native {
		if !slices.Contains(out, at.module) {
			out = append(out, at.module)
		}
	}
	slices.SortFunc(out, func(a, b *module.Module) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

// nativeAt returns the noted place of a native frame. An address may be a return address in one stack, and the
// address of an interrupted instruction in another stack: if both are known, only the first frame is certain.
func (l *late) nativeAt(ip arch.Addr, first bool) (nativePlace, bool) {
	exact, isExact := l.native[walk.Place{IP: ip, Exact: true}]
	call, isCall := l.native[walk.Place{IP: ip}]
	if isExact && (first || !isCall) {
		return exact, true
	}
	return call, isCall && !isExact
}

// Fetch gets missing symbols from Options.Source, and completes the frames of threads.
func (s *Stacks) Fetch(ctx context.Context, threads []snapshot.Thread) {
	l := s.late
	if s.late = nil; l == nil || len(l.lines) == 0 && len(l.native) == 0 {
		return
	}
	from := s.options.Source
	if s.lines != nil {
		s.lines.finder.Fetch(ctx, from)
	}
	s.engine.Modules.Fetch(ctx, from, l.modules())
	for i := range l.lines {
		s.completeLine(&l.lines[i])
	}
	if s.lines != nil {
		clear(s.lines.native)
	}
	for t := range threads {
		frames := threads[t].Frames
		for i := range frames {
			if frames[i].Kind != snapshot.Native || frames[i].Module == "" {
				continue
			}
			if at, ok := l.nativeAt(arch.Addr(frames[i].IP), i == 0); ok {
				s.nameNative(&frames[i], at)
			}
		}
		eachFrame(&threads[t], func(f *snapshot.Frame) {
			if f.Line != nil && f.Line.Line == 0 {
				f.Line = nil
			}
		})
	}
}

// completeLine fills the noted line of frames. A line that cannot be read stays empty.
func (n *Namer) completeLine(l *lateLine) {
	at, err := n.lineIn(l)
	if err == nil {
		*l.line = *sourceLine(&at, !l.exact)
	} else if n.lines.known[l.at] == l.line {
		delete(n.lines.known, l.at)
	}
}

// eachFrame visits the frames of a thread and of the thread's exceptions.
func eachFrame(t *snapshot.Thread, visit func(*snapshot.Frame)) {
	for i := range t.Frames {
		visit(&t.Frames[i])
	}
	exceptions := append([]*snapshot.ExceptionInfo{t.Exception}, t.Handling...)
	if t.FailFast != nil {
		exceptions = append(exceptions, t.FailFast.Exception)
	}
	for len(exceptions) > 0 {
		last := len(exceptions) - 1
		e := exceptions[last]
		if exceptions = exceptions[:last]; e == nil {
			continue
		}
		for i := range e.Frames {
			visit(&e.Frames[i].Frame)
		}
		exceptions = append(append(exceptions, e.Inner), e.Others...)
	}
}
