package snapshot

import "clrsnap/internal/dedup"

// FrameTable has the frames of packed stacks, equal frames once: the threads of a server call the same methods. The
// zero FrameTable is empty. A FrameTable is not safe for concurrent use, but its packed stacks are.
type FrameTable struct{ frames dedup.Table[Frame] }

// PackedStack is a stack in little memory: 16 bytes for each frame that other stacks have, too.
type PackedStack struct {
	frames []*Frame // leaf first, without SP
	sps    []uint64
}

// Pack packs a stack, and keeps no reference to frames.
func (t *FrameTable) Pack(frames []Frame) *PackedStack {
	s := &PackedStack{make([]*Frame, len(frames)), make([]uint64, len(frames))}
	for i := range frames {
		f := frames[i]
		s.sps[i], f.SP = f.SP, 0
		s.frames[i] = t.frames.At(t.frames.Add(f.IP, &f))
	}
	return s
}

// Unpack appends the frames of the stack to a slice.
func (s *PackedStack) Unpack(to []Frame) []Frame {
	for i, f := range s.frames {
		to = append(to, *f)
		to[len(to)-1].SP = s.sps[i]
	}
	return to
}

// Depth is how many frames the stack has.
func (t *Thread) Depth() int {
	if t.Packed != nil {
		return len(t.Packed.frames)
	}
	return len(t.Frames)
}

// Frame returns frame i, counted from the leaf. Callers must not change the frame. A frame of a packed stack has no
// SP.
func (t *Thread) Frame(i int) *Frame {
	if t.Packed != nil {
		return t.Packed.frames[i]
	}
	return &t.Frames[i]
}

// Stack returns the frames, leaf first: Frames, or the unpacked stack in the memory of buf. Callers must not change
// the frames.
func (t *Thread) Stack(buf *[]Frame) []Frame {
	if t.Packed == nil {
		return t.Frames
	}
	*buf = t.Packed.Unpack((*buf)[:0])
	return *buf
}
