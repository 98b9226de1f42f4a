package livetest

import (
	"regexp"
	"strings"
)

var (
	keyword = regexp.MustCompile(`\bSystem\.[A-Z][A-Za-z0-9]*`)
	tuple   = regexp.MustCompile(`System\.ValueTuple<([^<>]*)>`)
	// class of an iterator or an async method; the class has the method's name
	machine = regexp.MustCompile(`\+<([^<>]+)>d__[0-9]+`)
)

// keywords are the types with names of their own in C#.
var keywords = map[string]string{
	"Boolean": "bool", "Byte": "byte", "SByte": "sbyte", "Char": "char", "Decimal": "decimal", "Double": "double",
	"Single": "float", "Int32": "int", "UInt32": "uint", "IntPtr": "nint", "UIntPtr": "nuint", "Int64": "long",
	"UInt64": "ulong", "Int16": "short", "UInt16": "ushort", "Object": "object", "String": "string",
}

// InCSharp writes a type's name as C# does.
func InCSharp(name string) string {
	at := 0
	var b strings.Builder
	for _, m := range keyword.FindAllStringIndex(name, -1) {
		word, whole := keywords[name[m[0]+len("System."):m[1]]]
		if whole = whole && (m[1] == len(name) || strings.IndexByte(",>[", name[m[1]]) >= 0); whole {
			b.WriteString(name[at:m[0]] + word)
			at = m[1]
		}
	}
	b.WriteString(name[at:])
	return machine.ReplaceAllString(tuple.ReplaceAllString(b.String(), "($1)"), ".$1")
}
