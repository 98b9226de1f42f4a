package clrsnap

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
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
	var parents []int
	for _, rp := range r.all {
		if !rp.ended {
			parents = append(parents, rp.p.live.PID())
		}
	}
	for _, w := range r.pending {
		parents = append(parents, w.pid)
	}
	met := map[int]bool{}
	for _, pid := range parents {
		met[pid] = true
		for _, child := range childrenOf(pid) {
			if met[child] = true; !f.met[child] {
				r.expect(child, f.met != nil)
			}
		}
	}
	f.met = met // the number of one that has ended may be another's one day
}

// childrenOf lists the child processes of a process.
func childrenOf(pid int) []int {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	var out []int
	for _, file := range files {
		b, err := os.ReadFile(file)
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
