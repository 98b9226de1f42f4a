package permits

import (
	"errors"
	"fmt"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/ecma335"
)

// ErrUnknown: the object that code means cannot be told.
var ErrUnknown = errors.New("the object that the code means is not known")

// Place is an object, or a struct as if a MethodTable were in front of the struct.
type Place struct {
	At    arch.Addr
	Class *object.Class
	only  arch.Addr // of a struct of an unknown class: the only object in the struct
}

// Variable is an argument or a local variable of a method, by number. The number of this is 0.
type Variable struct {
	Local  bool
	Number int32
}

// This is the object of a method.
var This = Variable{}

// Root returns the argument or the variable that leads to a value; false: a static field leads to the value, or the
// root is not known.
func Root(v *ecma335.Value) (Variable, bool) {
	for v.Of != nil {
		v = v.Of
	}
	return Variable{v.Kind == ecma335.Local, v.Number}, v.Kind == ecma335.Argument || v.Kind == ecma335.Local
}

// Roots returns the object of an argument or a variable; false: not known.
type Roots func(v Variable) (Place, bool)

// Bounds of a search.
const (
	maxGetters = 16      // properties, for one value
	maxGetter  = 1 << 12 // bytes of IL of a property
)

// Find returns the object of a value of code in a module.
func (r *Reader) Find(module arch.Addr, v *ecma335.Value, roots Roots) (Place, error) {
	getters := maxGetters
	return r.find(module, v, roots, &getters)
}

// find is Find with a bound on the remaining properties.
func (r *Reader) find(module arch.Addr, v *ecma335.Value, roots Roots, getters *int) (Place, error) {
	switch v.Kind {
	case ecma335.Argument, ecma335.Local:
		if p, ok := roots(Variable{v.Kind == ecma335.Local, v.Number}); ok {
			return p, nil
		}
	case ecma335.StaticField:
		return r.static(module, v.Member)
	case ecma335.FieldOf:
		of, err := r.find(module, v.Of, roots, getters)
		if err != nil {
			return Place{}, err
		}
		return r.field(of, v.Member.Name)
	case ecma335.Result:
		if v.IsProperty() && *getters > 0 {
			*getters--
			return r.property(module, v, roots, getters)
		}
	}
	return Place{}, fmt.Errorf("%w: %v", ErrUnknown, v)
}

// at returns the object at an address.
func (r *Reader) at(obj arch.Addr) (Place, error) {
	class, err := r.objects.Class(obj)
	return Place{At: obj, Class: class}, err
}

// field follows a reference.
func (r *Reader) field(of Place, name string) (Place, error) {
	if of.only != 0 {
		return r.at(of.only)
	}
	if of.Class == nil {
		return Place{}, ErrUnknown
	}
	f, err := r.fieldOf(of.Class, name)
	if err != nil {
		return Place{}, err
	}
	if !f.Reference {
		return Place{}, fmt.Errorf("%w: %s is a struct", ErrUnknown, name)
	}
	obj, err := r.objects.Word(of.At + arch.Addr(f.Offset))
	if err != nil {
		return Place{}, err
	}
	return r.at(obj)
}

// fieldOf returns the field of a name. Of equal names, the field of the most derived class counts.
func (r *Reader) fieldOf(class *object.Class, name string) (out object.Field, err error) {
	fields, err := r.objects.FieldsOf(class)
	if err != nil {
		return out, err
	}
	for i := range fields {
		if fields[i].Name == name {
			out = fields[i]
		}
	}
	if out.Name == "" {
		return out, fmt.Errorf("%w: %s has no field %s", ErrUnknown, class.Display, name)
	}
	return out, nil
}

// static follows a static field of a class of the module. Static fields of generic classes are not known, nor any in
// .NET 8.
func (r *Reader) static(module arch.Addr, f *ecma335.Member) (Place, error) {
	if f.Definition.Table() != ecma335.TableField {
		return Place{}, fmt.Errorf("%w: %s of another module", ErrUnknown, f.Name)
	}
	a, err := r.names.Assembly(module)
	if err != nil {
		return Place{}, err
	}
	owner, err := a.Metadata.FieldOwner(f.Definition.RID())
	if err != nil {
		return Place{}, err
	}
	mt, err := r.types.Definition(module, owner)
	if err != nil {
		return Place{}, err
	}
	base, ok := r.types.Statics(mt)
	if mt == 0 || !ok {
		return Place{}, fmt.Errorf("%w: the static fields of %s", ErrUnknown, f.Owner)
	}
	rows, err := r.names.FieldNames(mt)
	if err != nil {
		return Place{}, err
	}
	fields, err := r.types.Fields(mt, rows)
	if err != nil {
		return Place{}, err
	}
	for _, x := range fields {
		if x.RID == f.Definition.RID() && x.Static && !x.Local && x.Reference() {
			obj, err := r.objects.Word(base + arch.Addr(x.Offset))
			if err != nil {
				return Place{}, err
			}
			return r.at(obj)
		}
	}
	return Place{}, fmt.Errorf("%w: no static field %s", ErrUnknown, f.Name)
}

// property follows the result of a property: a field of its object, or a static field.
func (r *Reader) property(module arch.Addr, v *ecma335.Value, roots Roots, getters *int) (Place, error) {
	if v.Of == nil {
		if v.Member.Definition.Table() != ecma335.TableMethodDef {
			return Place{}, fmt.Errorf("%w: a static property of another module", ErrUnknown)
		}
		return r.returned(module, v.Member.Definition.RID(), Place{}, getters)
	}
	of, err := r.find(module, v.Of, roots, getters)
	if err != nil {
		return Place{}, err
	}
	if of.Class == nil {
		return Place{}, ErrUnknown
	}
	in, rid, err := r.method(of.Class, v.Member.Name)
	if err != nil {
		return Place{}, err
	}
	return r.returned(in, rid, of, getters)
}

// method finds the method of a name for the objects of a class: the class's own method, or the nearest base's.
func (r *Reader) method(class *object.Class, name string) (module arch.Addr, rid uint32, err error) {
	for c := range class.Bases {
		t, err := r.types.Read(c.Table)
		if err != nil {
			return 0, 0, err
		}
		a, err := r.names.Assembly(t.Module)
		if err != nil {
			return 0, 0, err
		}
		def, ok, err := a.Metadata.OnlyMethod(t.RID, name)
		if err != nil {
			return 0, 0, err
		}
		if ok {
			return t.Module, def.RID, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: %s has no method %s", ErrUnknown, class.Display, name)
}

// returned follows the result of a method.
func (r *Reader) returned(module arch.Addr, rid uint32, this Place, getters *int) (Place, error) {
	v, err := r.result(module, rid)
	if err != nil {
		return Place{}, err
	}
	return r.find(module, v, thisIs(this), getters)
}

// result returns the result of a method, if the IL has a single return.
func (r *Reader) result(module arch.Addr, rid uint32) (v *ecma335.Value, err error) {
	il, err := r.names.IL(module, rid)
	if err != nil {
		return nil, err
	}
	if len(il) > maxGetter {
		return nil, fmt.Errorf("%w: a long property", ErrUnknown)
	}
	a, err := r.names.Assembly(module)
	if err != nil {
		return nil, err
	}
	actions, err := a.Metadata.Evaluate(il)
	if err != nil {
		return nil, err
	}
	for i := range actions {
		if actions[i].Kind != ecma335.Returning {
			continue
		}
		if v != nil {
			return nil, fmt.Errorf("%w: a property with several results", ErrUnknown)
		}
		v = actions[i].Value
	}
	if v == nil {
		return nil, fmt.Errorf("%w: a property that returns nothing", ErrUnknown)
	}
	return v, nil
}

// thisIs are the roots of a method of an object.
func thisIs(this Place) Roots {
	return func(v Variable) (Place, bool) { return this, v == This && (this.Class != nil || this.only != 0) }
}

// Fitting returns whether objects of a class can be in a variable of a method, by the method's use of the variable;
// nil: not known. If a variable is only disposed of, its Dispose releases permits, or else the variable does not
// matter.
func (r *Reader) Fitting(c *Code, v Variable) (fits func(*object.Class) bool) {
	if c == nil {
		return nil
	}
	for i := range c.Sections {
		s := &c.Sections[i]
		switch root, ok := Root(s.Object); {
		case !ok || root != v:
		case !s.Closes || s.Object.Of != nil:
			return leads(s.Object, isSemaphore)
		case s.Type.RID() != 0: // a struct: only a semaphore in the struct fits
			fits = isSemaphore
		default:
			fits = r.releases
		}
	}
	for i := range c.Promises {
		if root, ok := Root(c.Promises[i].Object); ok && root == v {
			return leads(c.Promises[i].Object, isCompletion)
		}
	}
	return fits
}

// leads returns the condition for the class of the variable that leads to a value: the class declares the member read
// from the variable. If the variable is the value itself, the condition is itself. Names of generic classes and of
// interfaces fit no class.
func leads(v *ecma335.Value, itself func(*object.Class) bool) func(*object.Class) bool {
	if v.Of == nil {
		return itself
	}
	for v.Of.Of != nil {
		v = v.Of
	}
	return func(class *object.Class) bool {
		for c := range class.Bases {
			if c.Display == v.Member.Owner {
				return true
			}
		}
		return false
	}
}

// releases reports whether Dispose of an object releases a permit.
func (r *Reader) releases(class *object.Class) bool {
	in, rid, err := r.method(class, disposeName)
	if err != nil {
		return false
	}
	gives, err := r.given(in, rid)
	return err == nil && len(gives) > 0
}

// Name is the author's name of the field, or the property, from which a value is read, with its class; "": not known,
// or a variable.
func (r *Reader) Name(module arch.Addr, v *ecma335.Value, roots Roots) string {
	switch {
	case v.Kind == ecma335.StaticField:
		return strings.ReplaceAll(v.Member.Owner, "+", ".") + "." + v.Member.Name
	case v.Of == nil:
		return ""
	}
	of, err := r.Find(module, v.Of, roots)
	if err != nil || of.Class == nil {
		return ""
	}
	switch v.Kind {
	case ecma335.FieldOf:
		if name, err := r.names.Holder(of.Class.Table, v.Member.Name); err == nil {
			return name
		}
	case ecma335.Result:
		return of.Class.Display + "." + strings.TrimPrefix(v.Member.Name, "get_")
	}
	return ""
}

// Held returns the semaphores whose permits a section holds: a single semaphore, unless Dispose releases several.
func (r *Reader) Held(module arch.Addr, s *Section, roots Roots) ([]Place, error) {
	if !s.Closes {
		p, err := r.Find(module, s.Object, roots)
		if err == nil && !isSemaphore(p.Class) {
			err = fmt.Errorf("%w: %v is no semaphore", ErrUnknown, s.Object)
		}
		return []Place{p}, err
	}
	in, rid, this, err := r.disposal(module, s, roots)
	if err != nil {
		return nil, err
	}
	gives, err := r.given(in, rid)
	if err != nil {
		return nil, err
	}
	var out []Place
	for _, v := range gives {
		if p, err := r.Find(in, v, thisIs(this)); err == nil && isSemaphore(p.Class) {
			out = append(out, p)
		}
	}
	return out, nil
}

// given returns the permits that a method releases without taking them.
func (r *Reader) given(module arch.Addr, rid uint32) ([]*ecma335.Value, error) {
	r.room = maxIL
	c, err := r.code(module, rid, 1)
	if c == nil || err != nil {
		return nil, err
	}
	return c.gives, nil
}

func isSemaphore(c *object.Class) bool { return c != nil && c.Is(coreLib, Semaphore) }

const disposeName = "Dispose"

// disposal finds the Dispose method of a section's object.
func (r *Reader) disposal(module arch.Addr, s *Section, roots Roots) (in arch.Addr, rid uint32, this Place, err error) {
	if this, err = r.Find(module, s.Object, roots); err == nil && !r.inVariable(module, s) {
		in, rid, err = r.method(this.Class, disposeName)
		return in, rid, this, err
	}
	if s.Type.RID() == 0 || s.Type.Table() != ecma335.TableTypeDef {
		return 0, 0, this, errors.Join(err, ErrUnknown)
	}
	a, err := r.names.Assembly(module)
	if err != nil {
		return 0, 0, this, err
	}
	def, ok, err := a.Metadata.OnlyMethod(s.Type.RID(), disposeName)
	if err != nil || !ok {
		return 0, 0, this, errors.Join(err, ErrUnknown)
	}
	if err = nil; r.inVariable(module, s) {
		this = Place{only: this.At}
	} else {
		this, err = r.structure(module, s.Object, roots)
	}
	return module, def.RID, this, err
}

// inVariable reports whether the object to dispose of is a struct of one reference in a variable: a reader of the
// variable would take the struct for an object.
func (r *Reader) inVariable(module arch.Addr, s *Section) bool {
	if s.Object.Kind != ecma335.Local || s.Type.RID() == 0 || s.Type.Table() != ecma335.TableTypeDef {
		return false
	}
	mt, err := r.types.Definition(module, s.Type.RID())
	if err != nil || mt == 0 {
		return false
	}
	class, err := r.objects.Table(mt)
	if err != nil {
		return false
	}
	fields, err := r.objects.FieldsOf(class)
	return err == nil && len(fields) == 1 && fields[0].Reference
}

// maxStruct bounds a struct that is searched, in bytes.
const maxStruct = 64

// structure returns a struct in a field, if the struct refers to a single object.
func (r *Reader) structure(module arch.Addr, v *ecma335.Value, roots Roots) (Place, error) {
	if v.Kind != ecma335.FieldOf {
		return Place{}, ErrUnknown
	}
	of, err := r.Find(module, v.Of, roots)
	if err == nil && of.Class == nil {
		err = ErrUnknown
	}
	if err != nil {
		return Place{}, err
	}
	fields, err := r.objects.FieldsOf(of.Class)
	if err != nil {
		return Place{}, err
	}
	f, err := r.fieldOf(of.Class, v.Member.Name)
	if err != nil {
		return Place{}, err
	}
	end := f.Offset + maxStruct
	if size, err := r.objects.Size(of.Class.Table); err == nil && size > 0 {
		end = min(end, size)
	}
	for i := range fields {
		if o := fields[i].Offset; o > f.Offset {
			end = min(end, o)
		}
	}
	var out Place
	for at := f.Offset; at+8 <= end; at += 8 {
		obj, err := r.objects.Word(of.At + arch.Addr(at))
		if err != nil {
			return Place{}, err
		}
		if _, err := r.objects.Class(obj); err != nil {
			continue
		}
		if out.only != 0 {
			return Place{}, ErrUnknown
		}
		out.only = obj
	}
	if out.only == 0 {
		return Place{}, ErrUnknown
	}
	return out, nil
}

// Task returns the task that a promise completes.
func (r *Reader) Task(module arch.Addr, p *Promise, roots Roots) (arch.Addr, error) {
	source, err := r.Find(module, p.Object, roots)
	if err != nil {
		return 0, err
	}
	if !isCompletion(source.Class) {
		return 0, fmt.Errorf("%w: %v is no TaskCompletionSource", ErrUnknown, p.Object)
	}
	return r.objects.Pointer(source.At, source.Class, "_task")
}

func isCompletion(c *object.Class) bool {
	return c != nil && c.Assembly == coreLib && strings.HasPrefix(c.Plain(), Completion)
}
