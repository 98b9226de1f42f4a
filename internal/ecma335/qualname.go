package ecma335

import (
	"slices"
	"strconv"
	"strings"
)

// Style says how much of a name is written.
type Style uint8

const (
	// Full writes Ns.Outer<int>+Nested.
	Full Style = iota
	// Short writes Outer<int>.Nested.
	Short
	// Runtime writes Ns.Outer<System.Int32>+Nested, as the runtime's debuggers do.
	Runtime
)

// QualName is the name of a type in parts.
type QualName struct {
	Namespace string
	Names     []string // outermost first, each with its `arity
}

func qualName(ns string, parts []string) QualName {
	return QualName{ns, slices.Clone(parts)}
}

// String returns the metadata form: Namespace.Outer`1+Nested.
func (q QualName) String() string {
	s := strings.Join(q.Names, "+")
	if q.Namespace != "" {
		return q.Namespace + "." + s
	}
	return s
}

// ParseTypeName splits a metadata name like Ns.Outer`1+Nested into its parts.
// Compiler-generated names may hold dots and pluses between angle brackets;
// there, dots and pluses do not separate.
func ParseTypeName(s string) QualName {
	var q QualName
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '<':
			depth++
		case '>':
			depth--
		case '+':
			if depth == 0 {
				q.Names = append(q.Names, s[start:i])
				start = i + 1
			}
		}
	}
	q.Names = append(q.Names, s[start:])
	first := q.Names[0]
	end := len(first)
	if i := strings.IndexAny(first, "<`"); i >= 0 {
		end = i
	}
	if dot := strings.LastIndexByte(first[:end], '.'); dot > 0 && dot+1 < len(first) {
		q.Namespace, q.Names[0] = first[:dot], first[dot+1:]
	}
	return q
}

// keywords are the types with a keyword in C#.
var keywords = map[string]string{
	"Void": "void", "Boolean": "bool", "Char": "char", "SByte": "sbyte", "Byte": "byte",
	"Int16": "short", "UInt16": "ushort", "Int32": "int", "UInt32": "uint", "Int64": "long", "UInt64": "ulong",
	"Single": "float", "Double": "double", "Decimal": "decimal",
	"String": "string", "Object": "object", "IntPtr": "nint", "UIntPtr": "nuint",
}

// Format writes the name in C# syntax, with args for the generic parameters:
// each level takes as many args as its arity. Nullable<T> becomes T?, a
// ValueTuple (A, B), a type with a C# keyword the keyword. Without args the
// arity stays: List`1.
func (q QualName) Format(args []string, style Style) string {
	if len(q.Names) == 0 {
		return ""
	}
	if q.Namespace == "System" && len(q.Names) == 1 && style != Runtime {
		if s, ok := special(q.Names[0], args); ok {
			return s
		}
	}
	var b strings.Builder
	if style != Short && q.Namespace != "" {
		b.WriteString(q.Namespace + ".")
	}
	for i, n := range q.Names {
		if i > 0 {
			b.WriteByte("+."[style&1])
		}
		name, arity := splitArity(n)
		take := min(arity, len(args))
		if i == len(q.Names)-1 {
			take = len(args) // whatever the arities say, no argument is lost
		}
		if take == 0 {
			b.WriteString(n)
			continue
		}
		b.WriteString(name + "<" + strings.Join(args[:take], ", ") + ">")
		args = args[take:]
	}
	return b.String()
}

// special writes the types of namespace System with a syntax of their own in C#.
func special(name string, args []string) (string, bool) {
	if len(args) == 0 {
		s, ok := keywords[name]
		return s, ok
	}
	base, arity := splitArity(name)
	if arity != len(args) {
		return "", false
	}
	switch {
	case base == "Nullable" && arity == 1:
		return args[0] + "?", true
	case base == "ValueTuple" && arity >= 2 && arity <= 7:
		return "(" + strings.Join(args, ", ") + ")", true
	case base == "ValueTuple" && arity == 8:
		// The eighth is a tuple with the other elements.
		rest, last := args[7], ""
		if r, ok := strings.CutPrefix(rest, "("); ok && strings.HasSuffix(r, ")") {
			last = r
		} else if r, ok := strings.CutPrefix(strings.TrimPrefix(rest, "System."), "ValueTuple<"); ok &&
			strings.HasSuffix(r, ">") {
			last = strings.TrimSuffix(r, ">") + ")"
		} else {
			return "", false
		}
		return "(" + strings.Join(args[:7], ", ") + ", " + last, true
	}
	return "", false
}

// splitArity cuts `2 off a name.
func splitArity(s string) (string, int) {
	i := strings.LastIndexByte(s, '`')
	if i < 0 {
		return s, 0
	}
	n, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || n == 0 {
		return s, 0
	}
	return s[:i], int(n)
}
