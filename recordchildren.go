package clrsnap

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/procfs"
)

// family finds the child processes of those that are recorded.
type family struct {
	next time.Duration
	met  map[int]bool // that it has been seen, by process id
}

const childrenEvery = 200 * time.Millisecond

// meetChildren expects .NET in processes that recorded ones, or other children,
// have started.
func (r *recorder) meetChildren() {
	f := &r.family
	if !r.o.Subprocesses || r.now < f.next {
		return
	}
	f.next = r.now + childrenEvery
	met := map[int]bool{}
	meet := func(parent procfs.Dir) {
		met[parent.PID()] = true
		for _, child := range childrenOf(parent) {
			if met[child] = true; !f.met[child] {
				r.expect(child, f.met != nil)
			}
		}
	}
	pending := slices.Clone(r.pending)
	for _, rp := range r.all {
		if !rp.ended {
			meet(rp.p.live.Dir())
		}
	}
	for _, w := range pending {
		if dir, err := procfs.Open(w.pid); err == nil {
			meet(dir)
			dir.Close()
		}
	}
	f.met = met // the number of one that has ended may be another's one day
}

// childrenOf lists the child processes of a process.
func childrenOf(of procfs.Dir) []int {
	tasks, err := of.Names("task")
	if err != nil {
		return nil
	}
	var out []int
	for _, task := range tasks {
		b, err := of.ReadFile("task/" + task + "/children")
		if err != nil {
			continue // the thread has ended
		}
		for _, s := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(s); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}
