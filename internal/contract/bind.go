package contract

import (
	"fmt"
	"reflect"
	"strings"

	"clrsnap/internal/arch"
)

// Absent is the offset or size of an optional field or type that the runtime lacks.
const Absent = ^uint32(0)

// Bind fills the struct that layout points to. The exported fields carry tags:
//
//	clr:"Type.Field"    uint32: offset of the field in bytes
//	clr:"A.B|C.D"       uint32: offset of C.D where the runtime has no A.B: a field with the same
//	                    meaning and another name in another release
//	clr:"size:Type"     uint32: size of the type in bytes; clr:"Type.!" is the same
//	global:"Name"       arch.Addr or uint64: value of the global; string: its text
//
// ",optional" after the name allows the runtime to lack the field, type or global: an offset or a size is then
// Absent, a global zero. has:"Field" names a bool of the same struct; Bind sets the bool to whether the runtime has
// the field, type or global. Fields without a tag, also of struct types, are not changed.
//
// Bind reports everything that is missing at once, as a *MissingError; layout is then filled in as far as possible. A
// malformed tag is a bug in the calling code: Bind panics.
func (d *Descriptor) Bind(layout any) error {
	v := reflect.ValueOf(layout)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("contract: Bind of %T, not of a pointer to a struct", layout))
	}
	v = v.Elem()
	missing := &MissingError{Runtime: d.Runtime}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		what, found := "", false
		optional := false
		if tag, ok := f.Tag.Lookup("clr"); ok {
			tag, optional = cutOptional(tag)
			what, found = d.bindLayout(v.Field(i), tag)
		} else if tag, ok := f.Tag.Lookup("global"); ok {
			tag, optional = cutOptional(tag)
			what, found = "global "+tag, d.bindGlobal(v.Field(i), tag)
		} else {
			continue
		}
		if !found && !optional {
			missing.Missing = append(missing.Missing, what)
		}
		if has := f.Tag.Get("has"); has != "" {
			v.FieldByName(has).SetBool(found)
		}
	}
	if len(missing.Missing) > 0 {
		return missing
	}
	return nil
}

func cutOptional(tag string) (string, bool) {
	return strings.CutSuffix(tag, ",optional")
}

// bindLayout sets a field to the offset or size of the first name in the tag that the runtime has, and returns a
// description of the names.
func (d *Descriptor) bindLayout(v reflect.Value, tag string) (what string, found bool) {
	if v.Kind() != reflect.Uint32 {
		panic(fmt.Sprintf("contract: clr:%q on a field of type %v", tag, v.Type()))
	}
	names := strings.Split(tag, "|")
	for i, name := range names {
		var n uint32
		names[i], n, found = d.offsetOrSize(name)
		v.SetUint(uint64(n))
		if found {
			break
		}
	}
	return strings.Join(names, " or "), found
}

// offsetOrSize looks up "Type.Field" or "size:Type"; the number is Absent where the runtime has no such field or
// type.
func (d *Descriptor) offsetOrSize(name string) (what string, n uint32, found bool) {
	typ, field, ok := cutLast(name)
	if t, isSize := strings.CutPrefix(name, "size:"); isSize {
		typ, field, ok = t, "!", true
	}
	if !ok || typ == "" || field == "" {
		panic(fmt.Sprintf("contract: clr:%q names no field", name))
	}
	if field == "!" {
		what = "size of " + typ
		n, found = d.Size(typ)
	} else {
		what = "field " + name
		n, found = d.Offset(typ, field)
	}
	if !found {
		n = Absent
	}
	return what, n, found
}

// cutLast cuts a name at the last dot: the names of managed types have dots of their own.
func cutLast(name string) (typ, field string, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

var addrType = reflect.TypeFor[arch.Addr]()

func (d *Descriptor) bindGlobal(v reflect.Value, name string) bool {
	switch {
	case v.Type() == addrType || v.Kind() == reflect.Uint64:
		n, ok := d.Global(name)
		v.SetUint(n)
		return ok
	case v.Kind() == reflect.String:
		s, ok := d.GlobalString(name)
		v.SetString(s)
		return ok
	}
	panic(fmt.Sprintf("contract: global:%q on a field of type %v", name, v.Type()))
}
