package permits

import "clrsnap/internal/ecma335"

// Inlined is a method that was inlined.
type Inlined struct {
	Method MethodID
	IL     uint32 // of the call that was inlined
}

// Inside returns the sections and promises of methods that were inlined into one another at a call of the method
// outer, outermost first. The call is between two offsets. Objects are values of outer: the objects of an inlined
// method count if they come from the method's first argument, or from a static field.
func (r *Reader) Inside(outer MethodID, from, to uint32, list []Inlined) (held [][]Section, promised [][]Promise) {
	held, promised = make([][]Section, len(list)), make([][]Promise, len(list))
	var first *ecma335.Value
	for i, in := range list {
		if in.Method.Module != outer.Module {
			break // another module has the names of the method's values
		}
		v, ok := r.firstArgument(outer, from, to, in.Method.RID)
		switch {
		case !ok:
			return held, promised
		case i == 0 || v == nil:
			first = v
		default:
			first = substituted(v, first)
		}
		outer, from, to = in.Method, in.IL, in.IL+1
		c, err := r.Code(in.Method.Module, in.Method.RID)
		if err != nil || c.Empty() {
			continue
		}
		sections, promises := c.At(from, to)
		for _, s := range sections {
			if s.Object = substituted(s.Object, first); s.Object != nil && !s.Closes {
				held[i] = append(held[i], s)
			}
		}
		for _, p := range promises {
			if p.Object = substituted(p.Object, first); p.Object != nil {
				promised[i] = append(promised[i], p)
			}
		}
	}
	return held, promised
}

// firstArgument returns the first argument of a call by a method, or nil if the call has no argument; false: there
// are several fitting calls, or the call is not known.
func (r *Reader) firstArgument(of MethodID, from, to, called uint32) (v *ecma335.Value, ok bool) {
	m, err := r.module(of.Module)
	if m == nil || err != nil {
		return nil, false
	}
	il, err := r.names.IL(of.Module, of.RID)
	if err != nil {
		return nil, false
	}
	actions, err := m.Metadata.Evaluate(il)
	if err != nil {
		return nil, false
	}
	callee := ecma335.MakeToken(ecma335.TableMethodDef, called)
	for i := range actions {
		a := &actions[i]
		if a.Kind != ecma335.Calling || a.At < from || a.At >= to || a.Member.Definition != callee {
			continue
		}
		if ok {
			return nil, false
		}
		if ok = true; len(a.Arguments) > 0 {
			v = a.Arguments[0]
		}
	}
	return v, ok
}
