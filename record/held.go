package record

import (
	"slices"

	"clrsnap/internal/perfevent"
)

// heldSamples are samples of processes that cannot be read yet, because .NET is only just starting
// there.
type heldSamples struct {
	of    map[int]*heldProcess // by process id
	bytes int
}

type heldProcess struct {
	records     []*perfevent.Record
	bytes, lost int
}

// maxHeld bounds the held stacks, in bytes.
const maxHeld = 64 << 20

// heldOverhead is roughly the size of a sample without its stack, in bytes.
const heldOverhead = 512

// keep holds a copy of x. If there is no room, the process with the most samples loses its samples: a
// process that has run for so long without .NET is unlikely to start it.
func (h *heldSamples) keep(x *perfevent.Record) {
	held := *x
	held.Stack, held.Kernel = slices.Clone(x.Stack), slices.Clone(x.Kernel)
	size := heldOverhead + len(held.Stack) + 8*len(held.Kernel)
	for h.bytes+size > maxHeld && h.bytes > 0 {
		h.drop()
	}
	p := h.of[x.PID]
	if p == nil {
		if h.of == nil {
			h.of = map[int]*heldProcess{}
		}
		p = &heldProcess{}
		h.of[x.PID] = p
	}
	p.records = append(p.records, &held)
	p.bytes += size
	h.bytes += size
}

func (h *heldSamples) drop() {
	var most *heldProcess
	for _, p := range h.of {
		if most == nil || p.bytes > most.bytes {
			most = p
		}
	}
	h.bytes -= most.bytes
	*most = heldProcess{lost: most.lost + len(most.records)}
}

// take returns and forgets the held samples of a process, and how many samples were lost.
func (h *heldSamples) take(pid int) (held []*perfevent.Record, lost int) {
	p := h.of[pid]
	if p == nil {
		return nil, 0
	}
	h.bytes -= p.bytes
	delete(h.of, pid)
	return p.records, p.lost
}
