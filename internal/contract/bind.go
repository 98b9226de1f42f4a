package contract

import (
	"fmt"
	"reflect"
	"strings"

	"clrsnap/internal/arch"
)

// Absent is the offset or size of what is optional and not there.
const Absent = ^uint32(0)

// Bind fills the struct that layout points to. Its exported fields carry tags:
//
//	clr:"Type.Field"    uint32: offset of the field in bytes
//	clr:"size:Type"     uint32: size of the type in bytes; clr:"Type.!" is the same
//	global:"Name"       arch.Addr or uint64: value of the global; string: its text
//
// ",optional" after the name allows the runtime not to have it: an offset or a
// size is then Absent, a global zero. has:"Field" names a bool of the same
// struct that says whether it was there. Fields without a tag, of struct types
// too, are left alone.
//
// Everything that is missing is reported at once, as a *MissingError; layout
// is then filled in as far as possible. A malformed tag is a mistake of the
// program and panics.
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

// bindLayout sets a field to an offset or a size and names what it looked for.
func (d *Descriptor) bindLayout(v reflect.Value, tag string) (what string, found bool) {
	typ, field, ok := strings.Cut(tag, ".")
	if t, isSize := strings.CutPrefix(tag, "size:"); isSize {
		typ, field, ok = t, "!", true
	}
	if !ok || typ == "" || field == "" {
		panic(fmt.Sprintf("contract: tag clr:%q", tag))
	}
	n := Absent
	if field == "!" {
		what = "size of " + typ
		if s, ok := d.Size(typ); ok {
			n, found = s, true
		}
	} else {
		what = "field " + tag
		if o, ok := d.Offset(typ, field); ok {
			n, found = o, true
		}
	}
	if v.Kind() != reflect.Uint32 {
		panic(fmt.Sprintf("contract: clr:%q on a field of type %v", tag, v.Type()))
	}
	v.SetUint(uint64(n))
	return what, found
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
