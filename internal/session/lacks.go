package session

import (
	"fmt"
	"strconv"
	"strings"

	"clrsnap/internal/origin"
	"clrsnap/snapshot"
)

// lacks counts the threads that needed memory missing in a dump.
type lacks struct {
	names  int          // threads with a gap in their description
	stacks map[int]bool // threads with a gap in their walk, by thread id
}

// watch notes whether the walk of a thread meets missing memory before the call of end.
func (l *lacks) watch(from origin.Origin, tid int) (end func()) {
	before := from.Misses()
	return func() {
		if from.Misses() == before {
			return
		}
		if l.stacks == nil {
			l.stacks = map[int]bool{}
		}
		l.stacks[tid] = true
	}
}

// note notes how long each stop of the snapshot lasts, or what the dump lacks, until end is called.
func (g *gathering) note() (end func()) {
	if g.Live != nil {
		g.stops = &g.out.Stops
		before := g.Live.Released()
		return func() { g.out.Released = g.Live.Released() - before }
	}
	return func() {
		missing, dump := g.from.Missing(g.lacks.consequence(g.out))
		if !dump {
			return
		}
		core := *g.info.Core
		if core.Missing = missing; g.unlisted != nil {
			core.Missing = append(core.Missing,
				fmt.Sprintf("names, locks and exceptions are known of %s only: %v",
					are(len(g.known), "thread", "threads"), g.unlisted))
		}
		g.out.Process.Core = &core
	}
}

// consequence describes the gaps of a snapshot for lack of memory in the dump.
func (l *lacks) consequence(s *snapshot.Snapshot) string {
	var cut []string
	whole, first := 0, 0
	for i := range s.Threads {
		t := &s.Threads[i]
		switch {
		case !l.stacks[t.OSThreadID]:
		case !t.Complete:
			cut = append(cut, strconv.Itoa(t.OSThreadID))
		default:
			if whole++; whole == 1 {
				first = t.OSThreadID
			}
		}
	}
	var out []string
	if n := len(cut); n > 0 {
		const most = 5
		list := strings.Join(cut[:min(n, most)], ", ")
		if n > most {
			list += ", …"
		}
		out = append(out, fmt.Sprintf("%s not complete (%s)", are(n, "stack is", "stacks are"), list))
	}
	if whole > 0 {
		const what = "names, parameters or tiers of methods may be missing, first in thread %d"
		out = append(out, fmt.Sprintf(what, first))
	}
	if l.names > 0 {
		whose := are(l.names, "thread", "threads")
		out = append(out, "the names of "+whose+" may be the kernel's, or missing")
	}
	if len(out) == 0 {
		return "nothing that is shown needs them"
	}
	return strings.Join(out, "; ")
}

func are(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// crashState is the state of the thread that the process died of: dying. While createdump writes a dump, the thread
// waits for createdump in the runtime's handler, or is still in the system call that raised the signal.
func (p *Process) crashState() string {
	switch s := p.info.Core.Signal; {
	case s == nil:
		return ""
	case s.Name == "SIGABRT":
		return "aborted (SIGABRT)"
	default:
		return "crashed (" + s.Name + ")"
	}
}
