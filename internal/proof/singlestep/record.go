package singlestep

import (
	"fmt"
	"path/filepath"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/replay"
	"clrsnap/internal/walk"
)

// Record writes the moment of a miss to a file in dir, with the true frames as
// the expected walk. The thread must still stand where the walk was wrong.
func (m *Miss) Record(dir, name string) error {
	r, th := m.r, m.r.recorded()
	rec, err := replay.Capture(r.p, []*replay.Thread{th}, m.key)
	if err != nil {
		return err
	}
	if m.what == "" {
		th.Walks = map[replay.How]replay.Walk{replay.Unwind: m.want()}
	}
	return rec.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%x.rec", name, m.truth.leaf.ip)))
}

// want is the truth as a walk's result.
func (m *Miss) want() replay.Walk {
	w := replay.Walk{Complete: true}
	for i := range m.truth.len() {
		f := m.truth.at(i)
		out := replay.Frame{IP: arch.Addr(f.ip), SP: arch.Addr(f.sp)}
		code, err := m.r.eng.Runtime.Code.Lookup(out.IP)
		switch {
		case err != nil:
		case code.Kind.Managed():
			out.Kind, out.MethodDesc = replay.Kind(walk.Managed), code.MethodDesc
		case code.Kind == codemap.Stub || m.r.eng.Modules.Find(out.IP) == nil:
			out.Kind = replay.Kind(walk.Stub)
		}
		w.Frames = append(w.Frames, out)
	}
	return w
}
