package waits

import (
	"encoding/binary"
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/target"
)

// found is an object on a stack.
type found struct {
	obj   arch.Addr
	class *object.Class
}

// candidates are the objects that a part of a stack refers to, each once. Not every reference
// counts: a frame also keeps references that the frame does not need any more.
type candidates struct {
	list []found
	seen map[arch.Addr]bool
}

// maxWords bounds the searched part of a stack, in words.
const maxWords = 1 << 13

// look finds the objects that the stack refers to between two addresses.
func (r *Reader) look(stack *target.Stack, from, to arch.Addr) []found {
	c := &r.found
	c.list = c.list[:0]
	if c.seen == nil {
		c.seen = map[arch.Addr]bool{}
	}
	clear(c.seen)
	end := stack.Base + arch.Addr(len(stack.Data))
	from, to = max((from+7)&^7, stack.Base), min(to, end)
	for n := 0; from+8 <= to && n < maxWords; from, n = from+8, n+1 {
		v := arch.Addr(binary.LittleEndian.Uint64(stack.Data[from-stack.Base:]))
		if v%8 != 0 || v < 1<<16 || v>>47 != 0 || v >= stack.Base && v < end || c.seen[v] {
			continue
		}
		c.seen[v] = true
		if !r.Managed.Heap.Contains(v) {
			continue
		}
		class, err := r.Managed.Objects.Class(v)
		if errors.Is(err, object.ErrLimit) {
			r.unknown = true
		} else if err == nil {
			c.list = append(c.list, found{v, class})
		}
	}
	return c.list
}

// inFrames returns the objects in the frames of the primitive; if wide, also the objects in the
// caller's frame, and in fields.
func (e *explanation) inFrames(wide bool) []found {
	outer := e.p.outer + 1
	if wide {
		outer++
	}
	list := e.r.look(e.s.Stack, arch.Addr(e.s.Frames[0].SP), frameAt(e.s, outer))
	if !wide {
		return list
	}
	for _, f := range e.fields {
		if !e.r.found.seen[f.obj] {
			list = append(list, f)
		}
	}
	return list
}

// only returns the single wanted object of a list; false: none is wanted, or several are, or the
// answer is unknown.
func (r *Reader) only(list []found, wanted func(*found) bool) (f found, ok bool) {
	for i := range list {
		if !wanted(&list[i]) {
			continue
		}
		if is := r.isObject(list[i].obj); r.unknown || is && ok {
			return found{}, false
		} else if is {
			f, ok = list[i], true
		}
	}
	return f, ok
}

// isObject reports whether an address has an object of the heap. If the answer is unknown, nothing
// that rests on searched objects is certain any more.
func (r *Reader) isObject(obj arch.Addr) bool {
	r.searched = true
	is, known := r.Managed.Heap.IsObject(obj)
	r.unknown = r.unknown || !known
	return is
}
