package session

import (
	"slices"

	"clrsnap/internal/dedup"
	"clrsnap/internal/naming"
	"clrsnap/snapshot"
)

// packing packs the stacks of a snapshot during the capture, and the facts about the calls of frames.
type packing struct {
	frames snapshot.FrameTable
	calls  dedup.Table[naming.Call]
	buf    []snapshot.Frame
	more   []snapshot.Frame // the frames of buf and inlined methods
}

// beginPacking begins to pack stacks, if Options want packed stacks. Stacks whose frames get names later are not
// packed, and stacks whose frames are read again.
func (g *gathering) beginPacking() {
	if g.Options.PackStacks && g.Options.Source == nil && !g.o.Unpacked && g.o.Observe == nil {
		g.packing = &packing{}
	}
}

// keepStack packs the stack of a thread that has just been walked and described, and returns the calls of its frames.
// A stack with awaited methods is not packed, because awaiters are found by the places of frames. Nor is a large
// stack.
func (g *gathering) keepStack(st *snapshot.Thread, awaited bool) keptCalls {
	calls := g.stack.calls
	if !g.Options.Inlined {
		calls = nil // the calls were for the wait
	}
	if g.packing == nil {
		return keptCalls{calls: slices.Clone(calls)}
	}
	if len(st.Frames) < largeStack {
		if awaited {
			st.Frames = slices.Clone(st.Frames)
		} else {
			st.Packed, st.Frames = g.packing.frames.Pack(st.Frames), nil
		}
	}
	out := keptCalls{table: &g.packing.calls, packed: make([]packedCall, len(calls))}
	for i := range calls {
		c := calls[i]
		out.packed[i].frame, c.Frame = int32(c.Frame), 0
		out.packed[i].call = g.packing.calls.Add(uint64(c.IP), &c)
	}
	return out
}

// callsByThread holds the calls of stacks, by thread id.
type callsByThread map[int]keptCalls

func (c callsByThread) keep(tid int, calls keptCalls) {
	if calls.len() > 0 {
		c[tid] = calls
	}
}

// addInlined adds to captured stacks the methods that were certainly inlined at the stacks' calls.
func (p *Process) addInlined(threads []snapshot.Thread, calls callsByThread) {
	if !p.Options.Inlined || len(calls) == 0 || !p.BeginInlined() {
		return
	}
	var buf []naming.Call
	var packed packing
	for i := range threads {
		t := &threads[i]
		kept, ok := calls[t.OSThreadID]
		if !ok {
			continue
		}
		buf = kept.unpack(buf[:0])
		if t.Packed != nil {
			p.packInlined(&packed, t, buf)
		} else {
			t.Frames = p.WithInlined(nil, t.Frames, buf)
		}
	}
}

// callsForWaits is the number of calls kept of a stack, from the leaf on, if inlined methods are
// not wanted: the calls serve to find inlined primitives.
const callsForWaits = 16

// keptCalls are the calls of a stack: as they are, or packed.
type keptCalls struct {
	calls  []naming.Call
	table  *dedup.Table[naming.Call] // without Frame; nil: the calls are not packed
	packed []packedCall
}

type packedCall struct {
	frame int32
	call  uint32
}

func (c *keptCalls) len() int { return max(len(c.calls), len(c.packed)) }

// unpack returns the calls. Packed calls use the memory of buf.
func (c *keptCalls) unpack(buf []naming.Call) []naming.Call {
	if c.table == nil {
		return c.calls
	}
	for _, packed := range c.packed {
		buf = append(buf, *c.table.At(packed.call))
		buf[len(buf)-1].Frame = int(packed.frame)
	}
	return buf
}

// packInlined is addInlined for a packed stack.
func (p *Process) packInlined(k *packing, t *snapshot.Thread, calls []naming.Call) {
	k.buf = t.Packed.Unpack(k.buf[:0])
	if frames := p.WithInlined(k.more[:0], k.buf, calls); len(frames) > len(k.buf) {
		t.Packed, k.more = k.frames.Pack(frames), frames
	}
}
