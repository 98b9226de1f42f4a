package record

import (
	"slices"
	"time"

	"clrsnap/internal/procfs"
)

// family is the known children of the recorded processes.
type family struct {
	next time.Duration
	met  map[int]bool // the processes seen so far, by id; nil before the first look
}

const childrenEvery = 200 * time.Millisecond

// meetChildren expects .NET in the processes that recorded processes, or other children, have started.
func (r *recorder) meetChildren() {
	f := &r.family
	if !r.o.Subprocesses || r.now < f.next {
		return
	}
	f.next = r.now + childrenEvery
	met := map[int]bool{}
	meet := func(parent procfs.Dir) {
		met[parent.PID()] = true
		children, _ := parent.Children() // none if the parent has exited
		for _, child := range children {
			if met[child] = true; !f.met[child] {
				r.expect(child, f.met != nil)
			}
		}
	}
	pending := slices.Clone(r.pending)
	for _, rp := range r.all {
		if !rp.ended {
			meet(rp.p.Live.Dir())
		}
	}
	for _, w := range pending {
		if dir, err := procfs.Open(w.pid); err == nil {
			meet(dir)
			dir.Close()
		}
	}
	f.met = met // without exited processes: their ids may be used again
}
