package engine

import (
	"debug/dwarf"
	"debug/elf"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/testenv"
)

// TestAheadTypes compares the names of all classes of native AOT programs that the program itself names with the
// compiler's symbols in another file.
func TestAheadTypes(t *testing.T) {
	for program, most := range map[string]int{"hello": 300, "slim": 1500} { // without names
		t.Run(program, func(t *testing.T) {
			file := testenv.AheadOfTimeNewest(t, program)
			pid, _ := testenv.StartAheadOfTimeNewest(t, file)
			e, r := openAhead(t, pid)
			if e.Types == nil {
				t.Fatal("the types are not known")
			}
			named, generic, arrays, wrong, unnamed := 0, 0, 0, 0, 0
			for at, symbol := range tables(t, file+".dbg", r.Module.Start-arch.Addr(r.Module.Offset(r.Module.Start))) {
				if err := e.Types.Check(at); err != nil {
					t.Errorf("%s: %v", symbol, err)
					continue
				}
				c, err := e.Types.Class(at)
				if err != nil {
					unnamed++
					continue
				}
				named++
				typ, err := e.Types.Read(at)
				if err != nil {
					t.Errorf("%s: %v", c.Display, err)
				}
				switch {
				case typ.Kind == types.SZArray:
					arrays++
				case typ.Generic:
					generic++
				}
				if !isClass(e, at, symbol) {
					wrong++
					t.Logf("%s is %s", symbol, c.Display)
				}
			}
			t.Logf("%d names, %d of generic types and %d of arrays; %d have no name", named, generic, arrays, unnamed)
			if wrong > 0 || unnamed > most || generic < 100 || arrays < 20 {
				t.Errorf("%d of %d names are wrong, and %d are missing", wrong, named, unnamed)
			}
		})
	}
}

// hydrated is the section of the MethodTables. The classes of the runtime, in C++, lie elsewhere.
const hydrated = ".hydrated"

// tables returns the symbols of the MethodTables in a file, by their addresses in a process.
func tables(t *testing.T, file string, bias arch.Addr) map[arch.Addr]string {
	t.Helper()
	f, symbols := testenv.Symbols(t, file)
	out := map[arch.Addr]string{}
	for _, s := range symbols {
		name, ok := strings.CutPrefix(s.Name, "_ZTV")
		if ok && int(s.Section) < len(f.Sections) && f.Sections[s.Section].Name == hydrated {
			out[bias+arch.Addr(s.Value)] = strings.TrimPrefix(strings.TrimLeft(name, "0123456789"), "Boxed_")
		}
	}
	return out
}

// isClass reports whether a symbol is that of a type: it has the parts of the type's name, one after the other.
func isClass(e *Engine, at arch.Addr, symbol string) bool {
	rest := letters(symbol)
	for _, part := range partsOf(e, at) {
		found := false
		for _, way := range []string{part, strings.TrimPrefix(part, "System")} { // the compiler knows a few types
			if _, after, ok := strings.Cut(rest, way); ok {
				rest, found = after, true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// partsOf returns the names of the types that a type is made of, in the order of the symbols.
func partsOf(e *Engine, at arch.Addr) []string {
	typ, err := e.Types.Read(at)
	if err != nil {
		return []string{"unreadable"}
	}
	switch typ.Kind {
	case types.SZArray:
		return append([]string{"Array"}, partsOf(e, typ.Elem)...)
	case types.Class:
	default:
		return nil // the names of pointers and of arrays with several dimensions are not compared
	}
	full, err := e.Types.FullName(at)
	if err != nil {
		return []string{"nameless"}
	}
	for long, short := range map[string]string{
		"System.Byte": "UInt8", "System.SByte": "Int8", "System.Boolean": "Bool",
	} {
		if full == long {
			full = short
		}
	}
	out := []string{letters(full)}
	for _, a := range typ.Args {
		out = append(out, partsOf(e, a)...)
	}
	return out
}

// TestAheadClasses compares the description of managed classes with the compiler's own for debuggers. Of classes that
// no program here has whole the description comes from CoreCLR.
func TestAheadClasses(t *testing.T) {
	known, ok := contract.EmbeddedAhead("11.0.0", arch.MachineAMD64)
	if !ok {
		t.Fatal("there is no description")
	}
	ours, err := known.Layout(nil, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := classes(t, testenv.AheadOfTimeNewest(t, "hello")+".dbg")
	compared := 0
	var left []string
	for name, typ := range ours.Types {
		other := theirs[symbolOf(name)]
		if strings.Contains(name, "AspNetCore") {
			continue // TestAheadFields
		}
		if len(other.fields) == 0 {
			left = append(left, name)
			continue
		}
		if typ.HasSize && int64(typ.Size) != other.size {
			t.Errorf("%s has %d bytes, not %d", name, other.size, typ.Size)
		}
		for field, f := range typ.Fields {
			o, ok := other.fields[field]
			asContract := f.Type == "any" || name == "ContinuationObject"
			if compared++; !ok || o.offset != int64(f.Offset) || !asContract && o.reference != (f.Type == "object") {
				t.Errorf("%s.%s: %+v, not %+v", name, field, o, f)
			}
		}
	}
	t.Logf("%d fields, without those of %q", compared, left)
	if compared < 130 || len(left) > 24 {
		t.Error("too little was compared")
	}
}

// TestAheadFields compares the described classes of ASP.NET Core with a program that has them: the sizes of objects and
// the places of all described references are those of the program's classes.
func TestAheadFields(t *testing.T) {
	known, ok := contract.EmbeddedAhead("11.0.0", arch.MachineAMD64)
	if !ok {
		t.Fatal("there is no description")
	}
	ours, err := known.Layout(nil, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := testenv.AheadOfTimeNewest(t, "slim")
	pid, _ := testenv.StartAheadOfTimeNewest(t, file)
	e, r := openAhead(t, pid)
	left := map[string]bool{}
	for name := range ours.Types {
		left[name] = strings.Contains(name, "AspNetCore")
	}
	for at := range tables(t, file+".dbg", r.Module.Start-arch.Addr(r.Module.Offset(r.Module.Start))) {
		full, err1 := e.Types.FullName(at)
		c, err2 := e.Types.Class(at)
		name := c.Assembly + "!" + full
		if err1 != nil || err2 != nil || !left[name] || strings.Contains(full, "`") {
			continue
		}
		delete(left, name)
		fields := 0
		if err := e.Types.EachField(at, func(string, uint32, bool) { fields++ }); err != nil ||
			fields != len(ours.Types[name].Fields) {
			t.Errorf("%s: %d fields, %v", name, fields, err)
		}
	}
	for name, wanted := range left {
		if wanted && !strings.Contains(name, "`") && !strings.Contains(name, "HttpActivityFeature") {
			t.Errorf("there is no %s", name)
		}
	}
}

// symbolOf is the compiler's name of a described class.
func symbolOf(name string) string {
	switch name {
	case "System.String":
		return "String"
	case "ContinuationObject":
		name = "System.Runtime.CompilerServices.Continuation"
	case "AsyncResumeInfo":
		name = "System.Runtime.CompilerServices.ResumeInfo"
	}
	assembly, class, ok := strings.Cut(name, "!")
	if !ok {
		assembly, class = "S_P_CoreLib", name
	}
	return strings.NewReplacer(".", "_", "+", "_", "`", "_").Replace(assembly + "_" + class)
}

type class struct {
	size   int64
	fields map[string]classField
}

type classField struct {
	offset    int64
	reference bool
}

// classes reads the classes in the information for debuggers. Of the instances of a generic class, one with fields
// counts.
func classes(t *testing.T, file string) map[string]class {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]class{}
	var in *class
	for r := info.Reader(); ; {
		entry, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if entry == nil {
			return out
		}
		switch entry.Tag {
		case dwarf.TagClassType, dwarf.TagStructType:
			name, _ := entry.Val(dwarf.AttrName).(string)
			name, _, _ = strings.Cut(name, "<")
			if in = nil; entry.Children && (len(out[name].fields) == 0) {
				size, _ := entry.Val(dwarf.AttrByteSize).(int64)
				out[name] = class{size, map[string]classField{}}
				one := out[name]
				in = &one
			}
		case dwarf.TagMember:
			at, ok := entry.Val(dwarf.AttrDataMemberLoc).(int64)
			if in == nil || !ok {
				continue
			}
			name, _ := entry.Val(dwarf.AttrName).(string)
			in.fields[name] = classField{at, isReferenceType(info, entry)}
		}
	}
}

// isReferenceType reports whether a member is a reference: strings and objects are classes, others have a type of
// their own.
func isReferenceType(info *dwarf.Data, member *dwarf.Entry) bool {
	off, ok := member.Val(dwarf.AttrType).(dwarf.Offset)
	if !ok {
		return false
	}
	r := info.Reader()
	r.Seek(off)
	entry, err := r.Next()
	return err == nil && entry != nil && entry.Tag == dwarf.TagReferenceType
}
