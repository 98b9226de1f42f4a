package async

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// Words are the words to read of an object of a chain. A caller copies the words before the reader runs: in the
// process itself, inside an event.
type Words struct {
	Offsets []int32 // in bytes, of words of 8 bytes
	Follow  uint16  // bit i: Offsets[i] is a reference that leads on
}

// wordSize is the size of a word in bytes.
const wordSize = 8

func (w *Words) word(offset uint32, follow bool) {
	if follow {
		w.Follow |= 1 << len(w.Offsets)
	}
	w.Offsets = append(w.Offsets, int32(offset&^(wordSize-1)))
}

// core adds the words of a ManualResetValueTaskSourceCore with its continuation: a delegate, and the delegate's
// argument.
func (w *Words) core(offset uint32) {
	w.word(offset, true)
	w.word(offset+wordSize, true)
}

// builder adds the words of a builder that may refer to the box.
func (w *Words) builder(offset uint32) {
	for i := range uint32(builderWords) {
		w.word(offset+wordSize*i, true)
	}
}

// copiedContinuations is how many continuations of a list are copied: two already end a chain. A list has room for as
// many before it grows.
const copiedContinuations = 4

// Words returns the words that are read of the objects of a class, by its MethodTable, besides the first word. None:
// no chain leads through the objects, or the class can be unloaded, and the MethodTable may be another class's later.
// all has the words of the class and its bases, if all derived classes have the same words.
func (r *Reader) Words(mt arch.Addr) (w Words, all map[arch.Addr]Words, err error) {
	class, err := r.objects.Table(mt)
	if err != nil || class.Collectible {
		return w, nil, err
	}
	s, err := r.shape(class)
	if err != nil {
		return w, nil, err
	}
	switch s.kind {
	case taskBox, pooledBox:
		err = r.boxWords(&w, s)
	case runtimeTask:
		w.word(s.field, true)
		w.word(s.next, true)
	case task, delegate, wrapper, continuing:
		w.word(s.field, true)
	case list:
		err = r.listWords(&w, class, s)
	case other:
		if strings.HasSuffix(class.Display, "[]") {
			length, items := r.objects.ArrayWords()
			w.word(length, false)
			for i := range uint32(copiedContinuations) {
				w.word(items+wordSize*i, true)
			}
		} else if m, err := r.machine(mt); err == nil && !m.value {
			r.machineWords(&w, m, 0)
		}
	}
	if err != nil {
		return Words{}, nil, err
	}
	if class.Is(coreLib, continuationClass) && r.continuation.known() {
		w.word(r.continuation.Next, true)
		w.word(r.continuation.Resume, false)
		w.word(r.continuation.State, false)
		return w, nil, nil
	}
	return w, r.baseWords(class), nil
}

// boxWords adds the words to read of a box.
func (r *Reader) boxWords(w *Words, s *shape) error {
	if s.kind == pooledBox {
		w.core(s.next)
	} else {
		w.word(s.next, true)
	}
	if !s.value {
		w.word(s.field, true)
		return nil
	}
	m, err := r.machine(s.machine)
	if err != nil {
		return err
	}
	r.machineWords(w, m, s.field-objectHeader)
	return nil
}

// machineWords adds the words to read of a state machine in an object: the state, the continuation of an async
// iterator, and the builder.
func (r *Reader) machineWords(w *Words, m *Machine, at uint32) {
	if m.state != 0 {
		w.word(at+m.state, false)
	}
	if m.promise != 0 {
		w.core(at + m.promise)
	}
	if m.builder != 0 && !m.value {
		w.builder(at + m.builder)
	}
}

func (r *Reader) listWords(w *Words, class *object.Class, s *shape) error {
	w.word(s.field, true)
	size, err := r.objects.Offset(class, "_size")
	if err == nil {
		w.word(size, false)
	}
	return err
}

// baseWords are the words of a class and its bases, as far as each derived class has the same words.
func (r *Reader) baseWords(class *object.Class) map[arch.Addr]Words {
	out := map[arch.Addr]Words{}
	for c := range class.Bases {
		if c.Assembly != coreLib || c.Collectible {
			continue
		}
		s, err := r.shape(c)
		if err != nil || s.kind != task && s.kind != delegate && s.kind != continuing {
			continue
		}
		var w Words
		w.word(s.field, true)
		out[c.Table] = w
	}
	return out
}

// ArgumentWords returns the words that are read from the first argument of a MoveNext on. mt is the type with the
// MoveNext. object: the argument is an object, and Words returns its words. False: nothing leads from there to a box.
func (r *Reader) ArgumentWords(mt arch.Addr) (w Words, object, ok bool) {
	m, err := r.machine(mt)
	switch {
	case err != nil || m.builder == 0:
		return w, false, false
	case !m.value:
		return w, true, true
	}
	w.builder(m.builder - objectHeader)
	return w, false, true
}
