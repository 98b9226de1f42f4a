package clrsnap

import (
	"slices"

	"clrsnap/internal/perfevent"
)

// heldSamples are samples of processes that cannot be read yet, because .NET is
// only just starting in them.
type heldSamples struct {
	of    map[int][]*perfevent.Record // by process id
	bytes int
	lost  int
}

// maxHeld bounds the stacks that are held, in bytes.
const maxHeld = 64 << 20

func (h *heldSamples) keep(x *perfevent.Record) {
	if h.bytes+len(x.Stack) > maxHeld {
		h.lost++
		return
	}
	if h.of == nil {
		h.of = map[int][]*perfevent.Record{}
	}
	held := *x
	held.Stack, held.Kernel = slices.Clone(x.Stack), slices.Clone(x.Kernel)
	h.bytes += len(held.Stack)
	h.of[x.PID] = append(h.of[x.PID], &held)
}

// take returns what is held of a process, and holds it no longer.
func (h *heldSamples) take(pid int) []*perfevent.Record {
	out := h.of[pid]
	for _, x := range out {
		h.bytes -= len(x.Stack)
	}
	delete(h.of, pid)
	return out
}
