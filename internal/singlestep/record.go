package singlestep

import (
	"fmt"
	"path/filepath"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/recording"
	"clrsnap/internal/walk"
)

// Record writes the moment of a miss to a file in dir, with the true frames as
// what a walk must give. The thread must still stand where the walk was wrong.
func (m *Miss) Record(dir, name string) error {
	r, th := m.r, m.r.recorded()
	rec, err := recording.Capture(r.p, []*recording.Thread{th}, m.key)
	if err != nil {
		return err
	}
	if m.what == "" {
		th.Walks = map[recording.How]recording.Walk{recording.Unwind: m.want()}
	}
	return rec.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%x.rec", name, m.truth.leaf.ip)))
}

// want is the truth as a walk's result.
func (m *Miss) want() recording.Walk {
	w := recording.Walk{Complete: true}
	for i := range m.truth.len() {
		f := m.truth.at(i)
		out := recording.Frame{IP: arch.Addr(f.ip), SP: arch.Addr(f.sp)}
		code, err := m.r.eng.Runtime.Code.Lookup(out.IP)
		switch {
		case err != nil:
		case code.Kind.Managed():
			out.Kind, out.MethodDesc = recording.Kind(walk.Managed), code.MethodDesc
		case code.Kind == codemap.Stub || m.r.eng.Modules.Find(out.IP) == nil:
			out.Kind = recording.Kind(walk.Stub)
		}
		w.Frames = append(w.Frames, out)
	}
	return w
}
