package async

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// MachineName returns the assembly and the metadata name of a type of state machines, for example
// "Web.Orders+<Handle>d__3". Both are empty if the type cannot be read.
func (r *Reader) MachineName(m *Machine) (assembly, full string) {
	assembly, full, err := r.objects.FullName(m.class)
	if err != nil {
		return "", ""
	}
	return assembly, full
}

// MachineOf describes the type of a state machine, by its MethodTable.
func (r *Reader) MachineOf(mt arch.Addr) (*Machine, error) { return r.machine(mt) }

// Locals reads the named parameters and local variables of a suspended method, "this" among them: words, in the order
// of the fields. None: the method keeps no variable of the name.
//
// The C# compiler names the field like the parameter, "<>4__this", or "<connection>5__2" for a local variable
// (Roslyn, GeneratedNames). Variables of the same name in different blocks have a field each.
func (r *Reader) Locals(b *Box, name string) ([]arch.Addr, error) {
	return r.locals(b.Machine, b.at, name)
}

// LocalsAt is Locals for a running method, by the first argument of its MoveNext and the type with the MoveNext. The
// method need not have been suspended.
func (r *Reader) LocalsAt(this, mt arch.Addr, name string) ([]arch.Addr, error) {
	m, err := r.machine(mt)
	if err != nil {
		return nil, err
	}
	at := this
	if m.value {
		at -= objectHeader
	}
	return r.locals(m, at, name)
}

const thisField = "<>4__this"

func (r *Reader) locals(m *Machine, at arch.Addr, name string) ([]arch.Addr, error) {
	fields, err := r.objects.FieldsOf(m.class)
	if err != nil {
		return nil, err
	}
	var out []arch.Addr
	for i := range fields {
		if !isLocal(&fields[i], name) {
			continue
		}
		v, err := r.objects.Word(at + arch.Addr(fields[i].Offset))
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func isLocal(f *object.Field, name string) bool {
	if name == "this" {
		return f.Name == thisField
	}
	return f.Name == name || strings.HasPrefix(f.Name, "<"+name+">5__")
}

// Saved calls found for each object that a method has saved, for example variables for later use. The variable of
// each object is not known. A number that equals the address of an object counts as well.
func (r *Reader) Saved(m *Resumption, found func(obj arch.Addr, class *object.Class)) error {
	class, err := r.objects.Class(m.Object)
	if err != nil {
		return err
	}
	return r.saved(m.Object, class, func(obj arch.Addr, c *object.Class) bool { found(obj, c); return true })
}

// saved is Saved of a Continuation, as long as more is wanted.
func (r *Reader) saved(at arch.Addr, class *object.Class, more func(obj arch.Addr, class *object.Class) bool) error {
	return r.savedWords(at, class, func(obj arch.Addr) bool {
		of, err := r.objects.Class(obj)
		return err != nil || more(obj, of) // otherwise a number, or a part of a struct
	})
}

// SavedWords calls found for each possible address among a method's saved words.
func (r *Reader) SavedWords(m *Resumption, found func(word arch.Addr)) error {
	class, err := r.objects.Class(m.Object)
	if err != nil {
		return err
	}
	return r.savedWords(m.Object, class, func(word arch.Addr) bool { found(word); return true })
}

// savedWords is SavedWords of a Continuation, as long as more is wanted.
func (r *Reader) savedWords(at arch.Addr, class *object.Class, more func(word arch.Addr) bool) error {
	from, to, err := r.savedIn(class)
	for off := from; off < to; off += wordSize {
		word, err := r.objects.Word(at + arch.Addr(off))
		if err != nil {
			return err
		}
		if word != 0 && word%wordSize == 0 && !more(word) {
			return nil
		}
	}
	return err
}

// SavedIn returns the range of a method's saved words in the Continuation, in bytes.
func (r *Reader) SavedIn(m *Resumption) (from, to uint32, err error) {
	class, err := r.objects.Class(m.Object)
	if err != nil {
		return 0, 0, err
	}
	return r.savedIn(class)
}

func (r *Reader) savedIn(class *object.Class) (from, to uint32, err error) {
	size, err := r.objects.Size(class.Table)
	if err != nil || !r.continuation.known() {
		return 0, 0, err
	}
	from = r.continuation.Size
	to = min(size, from+maxSaved*wordSize)
	return from, max(from, to-to%wordSize), nil
}
