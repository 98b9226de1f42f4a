package permits

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
)

// Use is the use of a field in the code around the field: in the declaring class, in the classes around the declaring
// class, and in all their nested classes, such as closures and state machines.
type Use struct {
	Count int  // of a semaphore: its initial number of permits; 0: not known, or not always the same
	Own   bool // no other code gets the object: the object is made there, and never passed on
	// Uneven: a method takes permits of the semaphore and releases none, or the other way round.
	Uneven bool
	// Takes and Gives are the rows, in Module, of the methods with calls that take permits, and that release permits.
	Takes, Gives []uint32
	Module       arch.Addr
	// Signal: the semaphore is made without permits, so that a release is news rather than the end of a use.
	Signal bool
	// Completes are the rows of the methods that complete the TaskCompletionSource.
	Completes []uint32
}

// Bounds of the code around one field.
const (
	maxClasses = 1 << 10
	maxMethods = 1 << 13
	maxUses    = 1 << 12 // fields that are kept
	maxOuter   = 4       // classes around a class, and properties that lead to a field
)

// MethodID is a method, by module and row in the MethodDef table.
type MethodID struct {
	Module arch.Addr
	RID    uint32
}

type useKey struct {
	module arch.Addr
	field  ecma335.Token
}

// Use returns the use of the field that a value is read from. A value without a field is an error.
func (r *Reader) Use(module arch.Addr, v *ecma335.Value, roots Roots) (*Use, error) {
	in, field, err := r.behind(module, v, roots, 0)
	if err != nil {
		return nil, err
	}
	key := useKey{in, field}
	if u, ok := r.uses[key]; ok {
		return u, nil
	}
	u, err := r.use(in, field)
	if err != nil {
		return nil, err
	}
	if len(r.uses) >= maxUses {
		clear(r.uses)
	}
	r.uses[key] = u
	return u, nil
}

// behind returns the field from which a value is read, through properties.
func (r *Reader) behind(module arch.Addr, v *ecma335.Value, roots Roots, depth int) (arch.Addr, ecma335.Token, error) {
	switch {
	case (v.Kind == ecma335.FieldOf || v.Kind == ecma335.StaticField) && v.Member.Definition.RID() != 0:
		return module, v.Member.Definition, nil
	case v.IsProperty() && v.Of != nil && depth < maxOuter:
		of, err := r.Find(module, v.Of, roots)
		if err != nil || of.Class == nil {
			return 0, 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		in, rid, err := r.method(of.Class, v.Member.Name)
		if err != nil {
			return 0, 0, err
		}
		back, err := r.result(in, rid)
		if err != nil {
			return 0, 0, err
		}
		return r.behind(in, back, thisIs(of), depth+1)
	}
	return 0, 0, fmt.Errorf("%w: %v is no field", ErrUnknown, v)
}

// use reads the code around a field.
func (r *Reader) use(module arch.Addr, field ecma335.Token) (*Use, error) {
	a, err := r.names.Assembly(module)
	if err != nil {
		return nil, err
	}
	owner, err := a.Metadata.FieldOwner(field.RID())
	if err != nil {
		return nil, err
	}
	u := usage{md: a.Metadata, field: field, out: &Use{Own: true, Module: module}, count: -1}
	if u.out.Own, err = private(a.Metadata, field, owner); err != nil {
		return nil, err
	}
	methods, err := around(a.Metadata, owner)
	if err != nil {
		return nil, err
	}
	room := maxIL
	token := binary.LittleEndian.AppendUint32(nil, uint32(field))
	for _, rid := range methods {
		il, err := r.names.IL(module, rid)
		if err != nil || !bytes.Contains(il, token) {
			continue // the method is abstract, or does not use the field
		}
		if room -= len(il); room < 0 {
			return nil, fmt.Errorf("%w: too much code around a field", ErrUnknown)
		}
		actions, err := a.Metadata.Evaluate(il)
		if err != nil {
			return nil, err
		}
		u.method(rid, actions)
	}
	return u.result(), nil
}

// private reports whether only the code around a field can use the field: the field is private, or its class is made
// by a compiler.
func private(md *ecma335.Metadata, field ecma335.Token, owner uint32) (bool, error) {
	const flags, access, ownClass = 0, 7, 1 // II.22.15, II.23.1.5
	f, err := md.Cell(ecma335.TableField, field.RID(), flags)
	if err != nil {
		return false, err
	}
	t, err := md.TypeDef(owner)
	return f&access == ownClass || strings.ContainsAny(t.Name, "<>$"), err
}

// around returns the methods of a class, of the classes around the class, and of all their nested classes.
func around(md *ecma335.Metadata, class uint32) (methods []uint32, err error) {
	for range maxOuter {
		outer, ok, err := md.EnclosingType(class)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		class = outer
	}
	nested := md.NestedTypes()
	classes := []uint32{class}
	for i := 0; i < len(classes); i++ { // classes grows
		own, err := md.Methods(classes[i])
		if err != nil {
			return nil, err
		}
		methods = append(methods, own...)
		classes = append(classes, nested[classes[i]]...)
		if len(classes) > maxClasses || len(methods) > maxMethods {
			return nil, fmt.Errorf("%w: a class with too much in it", ErrUnknown)
		}
	}
	return methods, nil
}

// usage is the use of a field while the code is read.
type usage struct {
	md    *ecma335.Metadata
	field ecma335.Token
	out   *Use
	count int // -1: none yet; -2: several
	made  bool

	takes, gives bool // the current method takes or gives, by its own calls
}

// result is the complete Use.
func (u *usage) result() *Use {
	u.out.Count = max(u.count, 0)
	u.out.Own = u.out.Own && u.made
	return u.out
}

// is reports whether a value is read from the field.
func (u *usage) is(v *ecma335.Value) bool {
	return v != nil && (v.Kind == ecma335.FieldOf || v.Kind == ecma335.StaticField) && v.Member.Definition == u.field
}

// constructor is the name of constructors.
const constructor = ".ctor"

// method adds a method's use of the field.
func (u *usage) method(rid uint32, actions []ecma335.Action) {
	u.takes, u.gives = false, false
	defer func() { u.out.Uneven = u.out.Uneven || u.takes != u.gives }()
	for i := range actions {
		a := &actions[i]
		switch a.Kind {
		case ecma335.Storing:
			if u.is(a.Value) && a.Member.Definition != u.field {
				u.out.Own = false
			}
			if a.Member.Definition == u.field {
				u.stored(a.Value, actions)
			}
		case ecma335.Setting:
			if u.is(a.Value) && !a.Stands {
				u.out.Own = false
			}
		case ecma335.Returning, ecma335.Losing:
			if u.is(a.Value) {
				u.out.Own = false
			}
		case ecma335.Calling, ecma335.Creating:
			u.called(rid, a)
		}
	}
}

// called adds a call that may have the field as an argument.
func (u *usage) called(rid uint32, a *ecma335.Action) {
	for i, v := range a.Arguments {
		switch {
		case !u.is(v):
		case i > 0 || !a.Member.This || a.Kind == ecma335.Creating:
			u.out.Own = false
		default:
			u.does(rid, verbOf(a.Member))
		}
	}
}

// does adds an action on the field.
func (u *usage) does(rid uint32, v verb) {
	switch v {
	case waits, begins:
		u.takes, u.out.Takes = true, with(u.out.Takes, rid)
	case releases:
		u.gives, u.out.Gives = true, with(u.out.Gives, rid)
	case completes:
		u.out.Completes = with(u.out.Completes, rid)
	}
}

// with adds a row to a list of rows, once.
func with(list []uint32, rid uint32) []uint32 {
	if slices.Contains(list, rid) {
		return list
	}
	return append(list, rid)
}

// stored adds a value that the field is set to.
func (u *usage) stored(v *ecma335.Value, actions []ecma335.Action) {
	if v.Kind == ecma335.Local {
		v = setOnce(v.Number, actions)
	}
	if v == nil || v.Kind != ecma335.Result || v.Member.Name != constructor {
		u.out.Own, u.count = false, several
		return
	}
	u.made = true
	n := several
	for i := range actions {
		a := &actions[i]
		if a.Kind == ecma335.Creating && int32(a.At) == v.Number && a.Member.Owner == Semaphore &&
			len(a.Arguments) > 0 && a.Arguments[0].Kind == ecma335.Constant {
			n = int(a.Arguments[0].Number)
			u.out.Signal = u.out.Signal || n == 0
		}
	}
	if u.count == -1 {
		u.count = n
	} else if u.count != n {
		u.count = several
	}
}

const several = -2

// setOnce returns the only value that a variable is set to; nil: there are several.
func setOnce(variable int32, actions []ecma335.Action) (out *ecma335.Value) {
	for i := range actions {
		if a := &actions[i]; a.Kind == ecma335.Setting && a.Variable == variable {
			if out != nil {
				return nil
			}
			out = a.Value
		}
	}
	return out
}
