package tasks

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/session"
)

// maxBatch bounds the objects that are read together.
const maxBatch = 64

// batch reads many objects, some dozens in one consistent read: the second look at the memory takes a few system
// calls, however many objects the look is for. Where the memory has changed, each of these objects is read by itself.
type batch[T any] struct {
	read    func(arch.Addr) (T, error)   // reads an object as memory has the object now
	once    func(read func() error) bool // reads together, once; false: the memory has changed meanwhile
	alone   func(read func() error) bool // reads a single object, also several times
	crowded func() bool                  // no more is to be read together
	size    int                          // how many objects are read together next
}

// batchOf returns a batch of p's objects.
func batchOf[T any](p *session.Process, alone func(func() error) bool, read func(arch.Addr) (T, error)) *batch[T] {
	once := func(read func() error) bool {
		ok := p.Moments().Once(read)
		if !ok {
			p.Engine.Cache.Invalidate()
		}
		return ok
	}
	return &batch[T]{read: read, once: once, alone: alone, crowded: p.Managed.Seen.Crowded, size: 1}
}

// steady is moment.Reader.Read for a read that nothing else makes invalid.
func (t *Walk) steady(read func() error) bool { return t.p.Moments().Read(read, nil) }

// some reads the first objects, at least one. stands reports for each of these whether it was so at one moment.
func (b *batch[T]) some(objs []arch.Addr) (out []T, stands []bool) {
	objs = objs[:min(len(objs), b.size)]
	next := min(2*b.size, maxBatch)
	if len(objs) > 1 {
		out, stands = b.together(objs)
	}
	if len(out) == 0 {
		if len(objs) > 1 {
			next = max(b.size/2, 1)
		}
		out, stands = make([]T, len(objs)), make([]bool, len(objs))
	}
	b.size = next
	for i := range out {
		if !stands[i] {
			stands[i] = b.alone(func() (err error) {
				out[i], err = b.read(objs[i])
				return err
			})
		}
	}
	return out, stands
}

// together reads objects, as many as there is room for, in one consistent read; nil: the memory has changed. stands is
// false for an object that could not be read.
func (b *batch[T]) together(objs []arch.Addr) (out []T, stands []bool) {
	ok := b.once(func() error {
		for _, obj := range objs {
			one, err := b.read(obj)
			out, stands = append(out, one), append(stands, err == nil)
			if b.crowded() {
				break
			}
		}
		return nil
	})
	if !ok {
		return nil, nil
	}
	return out, stands
}
