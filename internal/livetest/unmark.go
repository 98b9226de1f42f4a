package livetest

import (
	"reflect"
	"strings"

	"clrsnap/snapshot"
)

// Unmark removes the marks of unproved names from the contents of a dump (*snapshot.Snapshot,
// *snapshot.Heap, *snapshot.Tasks). A dump of the kernel or of gcore has nothing of plain IL; a test
// that compares the dump with the running program knows that the files are right. The contents of a
// running process stay as they are.
func Unmark(v any) {
	p := reflect.ValueOf(v)
	if p.IsNil() || p.Elem().FieldByName("Process").FieldByName("Core").IsNil() {
		return
	}
	unmark(p, map[uintptr]bool{})
}

func unmark(v reflect.Value, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		unmark(v.Elem(), seen)
	case reflect.Struct:
		if f, ok := v.Addr().Interface().(*snapshot.Frame); ok && f.Unproved {
			f.Unproved = false
			if f.Line != nil {
				line := *f.Line
				line.Approximate = false
				f.Line = &line
			}
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				unmark(v.Field(i), seen)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			unmark(v.Index(i), seen)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(strings.ReplaceAll(v.String(), " (?)", ""))
		}
	}
}
