package name

import "strings"

// Kind is the kind of a piece of source that a compiler turned into a method.
type Kind uint8

// The kinds of method.
const (
	Plain         Kind = iota // as written in the source
	Lambda                    // a lambda or anonymous method
	LocalFunction             // a function declared inside a method
	StateMachine              // a part of an async method or iterator
	EntryPoint                // the synchronous Main around an async Main
)

// Hint distinguishes state machines with the same form of name. The hint follows from the type's interfaces or base:
// async state machines implement System.Runtime.CompilerServices.IAsyncStateMachine.
type Hint uint8

// The hints.
const (
	NoHint Hint = iota
	Async
	Iterator
	AsyncIterator
)

// Friendly is a method from its author's point of view.
type Friendly struct {
	Type   string // metadata form (Ns.Outer`1+Nested), without compiler-generated types
	Method string // source name; "" where the compiler kept none (Visual Basic's lambdas)
	Suffix string // the part of Method: "{lambda 3_0}", "{async}", several in a row, or ""
	Kind   Kind   // of the innermost part

	// MethodArity is the number of the type's generic arguments, counted from the last, that really belong to Method.
	// Types that F# makes have AllOfThem.
	MethodArity int
}

// AllOfThem is the MethodArity of a type whose generic arguments all belong to its method. The types that F# makes
// declare the parameters that they need, whatever the types around them declare, and their names do not have the
// number.
const AllOfThem = -1

// typeArgs returns the number of Type's arguments among n generic arguments.
func (f Friendly) typeArgs(n int) int {
	switch {
	case f.MethodArity == AllOfThem:
		return 0
	case f.MethodArity > n:
		return n // the n arguments belong to another type
	}
	return n - f.MethodArity
}

// maxLayers bounds the nesting of generated names; compilers reach four.
const maxLayers = 16

// FriendlyName finds the source behind a type's and a method's metadata names. Names that do not follow a known
// pattern to the end come back unchanged.
//
//	type                                method                     shown as
//	Ns.Outer+<>c                        <Main>b__9_8               Ns.Outer.Main{lambda 9_8}
//	Ns.Outer+<>c__DisplayClass9_0       <Main>b__8                 Ns.Outer.Main{lambda 9_8}
//	Ns.Outer                            <Foo>g__Local|3_0          Ns.Outer.Foo{local Local}
//	Ns.Outer+<RunAsync>d__5             MoveNext, Async            Ns.Outer.RunAsync{async}
//	Ns.Outer+<Items>d__6                MoveNext, Iterator         Ns.Outer.Items{iterator}
//	Ns.Outer+<RunAsync>d__5             MoveNext, NoHint           Ns.Outer.RunAsync
//	Ns.Outer+<Items>d__6                System.IDisposable.Dispose Ns.Outer.Items{iterator Dispose}
//	Ns.Outer+<>c+<<RunAsync>b__5_0>d    MoveNext, Async            Ns.Outer.RunAsync{lambda 5_0}{async}
//	Ns.Outer`1+<Foo>d__3`1              MoveNext, Async            Ns.Outer.Foo{async}, MethodArity 1
//	Program                             <Main>$                    Program.Main
//	Program                             <Main>                     Program.Main{entry}
//	Ns.<File>F0123…__Hidden             Go                         Ns.Hidden.Go
//	Ns.Outer                            .ctor                      Ns.Outer..ctor
//	Ns.Outer                            System.IDisposable.Dispose unchanged; Short: Outer.IDisposable.Dispose
//	Ns.Outer+VB$StateMachine_5_RunAsync MoveNext, Async            Ns.Outer.RunAsync{async}
//	Ns.Outer+_Closure$__                _Lambda$__9-0              Ns.Outer.{lambda 9-0}
//	Ns.Outer+_Closure$__9-0             _Lambda$__1                Ns.Outer.{lambda 9-1}
//	Ns.Outer+loop@12-1                  Invoke                     Ns.Outer.loop{lambda 12-1}
//	Ns.Outer+work@14                    MoveNext, Async            Ns.Outer.work{async}
//	Ns.Outer+items@16                   GenerateNext               Ns.Outer.items{iterator}
//
// A lambda's numbers are the compiler's: the number of the method in the type (for overloads), and the number of the
// lambda in the method. F# has the line instead. The C# and Visual Basic patterns are Roslyn's (dotnet/roslyn,
// src/Compilers/CSharp/Portable/Symbols/Synthesized/GeneratedNames.cs and GeneratedNameKind.cs;
// VisualBasic/Portable/Symbols/SynthesizedSymbols/GeneratedNames.vb). The patterns of F# are in dotnet/fsharp
// (tests/FSharp.Compiler.ComponentTests/EmittedIL): F# turns task { } into a state machine, seq { } into a subclass
// of GeneratedSequenceBase, and async { } into closures like the closures of lambdas.
func FriendlyName(typeName, method string, hint Hint) Friendly {
	plain := Friendly{Type: typeName, Method: method}
	if !strings.ContainsAny(typeName, "<$@") && !strings.ContainsAny(method, "<$") {
		return plain
	}
	segs, ok := splitNested(typeName)
	if !ok {
		return plain
	}
	if f, ok := resolve(segs, method, hint, 0); ok {
		return f
	}
	return plain
}

// resolve peels one layer off: the type that the compiler made around the method, or the method's own name.
func resolve(segs []string, method string, hint Hint, depth int) (Friendly, bool) {
	if depth > maxLayers {
		return Friendly{}, false
	}
	if len(segs) > 1 {
		outer := segs[:len(segs)-1]
		last, arity := cutArity(segs[len(segs)-1])
		var f Friendly
		var ok, matched bool
		if ordinal, is := closure(last); is {
			// Besides constructors, a closure type has only generated methods.
			f, _, ok = resolveMember(outer, method, ordinal, depth)
			matched = true
		} else if source, is := stateMachine(last); is {
			f, ok = resolve(outer, source, NoHint, depth+1)
			f.add(StateMachine, machineSuffix(method, hint))
			matched = true
		} else if f, is := fsharp(last, method, hint); is {
			f.Type = join(outer)
			return f, true
		}
		if matched {
			if f.MethodArity != AllOfThem {
				f.MethodArity += arity
			}
			return f, ok
		}
	}
	if f, matched, ok := resolveMember(segs, method, "", depth); matched {
		return f, ok
	}
	// A source name that still looks generated belongs to no known pattern.
	return Friendly{Type: join(segs), Method: method}, depth == 0 || !strings.HasPrefix(method, "<")
}

// resolveMember reads a generated method name. matched: the name is generated. ok: all names inside could be read.
// ordinal is the number of the source method, if the enclosing closure type has the number instead of the name.
func resolveMember(segs []string, method, ordinal string, depth int) (f Friendly, matched, ok bool) {
	if number, is := strings.CutPrefix(method, "_Lambda$__"); is && isOrdinal(strings.TrimPrefix(number, "R")) {
		number = strings.TrimPrefix(number, "R")
		if ordinal != "" && !strings.Contains(number, "-") {
			number = ordinal + "-" + number
		}
		f.Type = join(segs)
		f.add(Lambda, "{lambda "+number+"}")
		return f, true, true
	}
	source, rest, is := generated(method)
	if !is {
		return f, false, false
	}
	if source == "Main" && ordinal == "" {
		switch rest {
		case "$": // top-level statements
			return Friendly{Type: join(segs), Method: "Main"}, true, true
		case "":
			return Friendly{Type: join(segs), Method: "Main", Suffix: "{entry}", Kind: EntryPoint}, true, true
		}
	}
	kind, suffix, is := part(rest, ordinal)
	if !is {
		return f, false, false
	}
	f, ok = resolve(segs, source, NoHint, depth+1)
	f.add(kind, suffix)
	return f, true, ok
}

// part reads the rest behind the source name: b__9_8 of a lambda, g__Local|3_0 of a local function.
func part(rest, ordinal string) (k Kind, suffix string, ok bool) {
	if number, is := strings.CutPrefix(rest, "b__"); is && isOrdinal(number) {
		if ordinal != "" && !strings.Contains(number, "_") {
			number = ordinal + "_" + number
		}
		return Lambda, "{lambda " + number + "}", true
	}
	if local, is := strings.CutPrefix(rest, "g__"); is {
		if bar := strings.LastIndexByte(local, '|'); bar > 0 && isOrdinal(local[bar+1:]) {
			return LocalFunction, "{local " + local[:bar] + "}", true
		}
	}
	return Plain, "", false
}

func (f *Friendly) add(k Kind, suffix string) {
	f.Kind = k
	f.Suffix += suffix
}

// machineSuffix names a member of a state machine. MoveNext is the source method's body; the other members are the
// compiler's own, and tell the kind of the machine.
func machineSuffix(member string, hint Hint) string {
	short := member[strings.LastIndexByte(member, '.')+1:]
	switch {
	case member == ".ctor" || member == ".cctor":
		short = member
	case strings.HasPrefix(member, "<>m__Finally"):
		short = "finally"
		hint = max(hint, Iterator)
	case hint != NoHint:
	case short == "SetStateMachine":
		hint = Async
	case strings.Contains(member, "IAsyncEnumera") || strings.Contains(member, "IValueTaskSource") ||
		short == "DisposeAsync":
		hint = AsyncIterator
	case strings.HasPrefix(member, "System.Collections.") || short == "Dispose":
		hint = Iterator
	}
	word := [...]string{"state machine", "async", "iterator", "async iterator"}[hint&3]
	switch {
	case short != "MoveNext":
		return "{" + word + " " + short + "}"
	case hint == NoHint:
		return ""
	}
	return "{" + word + "}"
}

// closure recognises the types with lambdas and captured variables, and returns the number of the source method if
// the name has the number: <>c, <>c__9 (generic methods), <>c__DisplayClass9_0, _Closure$__9-0.
func closure(seg string) (ordinal string, ok bool) {
	if rest, is := strings.CutPrefix(seg, "_Closure$__"); is {
		rest = strings.TrimPrefix(rest, "R")
		ordinal, _, _ = strings.Cut(rest, "-")
		return ordinal, rest == "" || isOrdinal(rest)
	}
	rest, is := strings.CutPrefix(seg, "<>c")
	if !is {
		return "", false
	}
	if rest == "" {
		return "", true
	}
	if rest, is = strings.CutPrefix(rest, "__"); !is {
		return "", false
	}
	rest = strings.TrimPrefix(rest, "DisplayClass")
	ordinal, _, _ = strings.Cut(rest, "_")
	return ordinal, isOrdinal(rest)
}

// stateMachine recognises <Source>d__5, <<Source>b__0>d and
// VB$StateMachine_5_Source, and returns the source's name.
func stateMachine(seg string) (source string, ok bool) {
	if rest, is := strings.CutPrefix(seg, "VB$StateMachine_"); is {
		_, source, ok = strings.Cut(rest, "_")
		return source, ok && source != ""
	}
	source, rest, is := generated(seg)
	if !is || rest == "" || rest[0] != 'd' {
		return "", false
	}
	if number, is := strings.CutPrefix(rest[1:], "__"); rest != "d" && (!is || !isOrdinal(number)) {
		return "", false
	}
	// A dot would read as a namespace in a type's name, so the compiler writes a dash. No C# identifier holds a dash.
	return strings.ReplaceAll(source, "-", "."), true
}

// fsharp recognises F#'s name@line and name@line-n types by their shape and by their methods.
func fsharp(seg, method string, hint Hint) (f Friendly, ok bool) {
	at := strings.LastIndexByte(seg, '@')
	if at <= 0 || !isOrdinal(strings.TrimSuffix(seg[at+1:], "T")) {
		return f, false
	}
	f = Friendly{Method: seg[:at], MethodArity: AllOfThem}
	switch {
	case hint == Async || hint == AsyncIterator: // object expressions may be hand-written iterators
		f.add(StateMachine, machineSuffix(method, hint))
	case method == "GenerateNext":
		f.add(StateMachine, machineSuffix("MoveNext", Iterator))
	case method == "Invoke" || method == "MoveNext" || method == "Specialize":
		f.add(Lambda, "{lambda "+strings.TrimSuffix(seg[at+1:], "T")+"}")
	default:
		return f, false
	}
	return f, true
}

// generated takes <source>rest apart. The source may have its own brackets.
func generated(name string) (source, rest string, ok bool) {
	if len(name) < 3 || name[0] != '<' {
		return "", "", false
	}
	depth := 0
	for i := range len(name) {
		switch name[i] {
		case '<':
			depth++
		case '>':
			if depth--; depth == 0 {
				return name[1:i], name[i+1:], i > 1
			}
		}
	}
	return "", "", false
}

// isOrdinal reports whether s is a number in generated names: 3, 3_0, 3-0 (Visual Basic, F#), 3#1 (after a hot
// reload).
func isOrdinal(s string) bool {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return false
	}
	return strings.Trim(s, "0123456789_-#") == ""
}
