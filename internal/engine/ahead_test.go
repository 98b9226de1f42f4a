package engine

import (
	"debug/elf"
	"strings"
	"testing"
	"unicode"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/aot"
	"clrsnap/internal/locate"
	"clrsnap/internal/module"
	"clrsnap/internal/testenv"
)

// openAhead returns an engine on a native AOT program of the newest .NET.
func openAhead(t *testing.T, pid int) (*Engine, *locate.Runtime) {
	t.Helper()
	e := openProcess(t, pid)
	r, err := e.OpenRuntime()
	if r == nil || r.Shape != locate.NativeAOT || e.Ahead == nil {
		t.Fatalf("the runtime is %+v, with names: %v: %v", r, e.Ahead != nil, err)
	}
	return e, r
}

// TestAheadNames compares the names of all methods of native AOT programs with the compiler's symbols in another
// file.
func TestAheadNames(t *testing.T) {
	for _, program := range []string{"hello", "slim"} {
		t.Run(program, func(t *testing.T) {
			file := testenv.AheadOfTimeNewest(t, program)
			pid, _ := testenv.StartAheadOfTimeNewest(t, file)
			e, r := openAhead(t, pid)
			named, wrong := 0, 0
			for start, f := range functions(t, file+".dbg", r.Module) {
				m, ok := e.Ahead.Method(start)
				if !ok {
					continue
				}
				named++
				if at, ok := r.Module.Function(start); !ok || at != start {
					t.Errorf("%s: the function begins at %v, the method at %v", m.Exact, at, start)
				}
				isMachine := strings.Contains(m.Exact, ">d") // has lost its parameters
				if !isOne(f.symbols, m.Exact) || m.Assembly == "" || m.Signature == "" && !isMachine {
					wrong++
					t.Logf("%s%s of %q is %q", m.Exact, m.Signature, m.Assembly, f.symbols)
				}
			}
			if named == 0 || named != e.Ahead.Len() || wrong > 0 {
				t.Errorf("of %d names %d are of functions, and %d of these are not those of the symbols",
					e.Ahead.Len(), named, wrong)
			}
			t.Logf("%d methods", named)
		})
	}
}

// TestAheadParts looks up the methods of instructions. A method and its parts (the handlers, which are functions of
// their own in the unwind information) have one symbol.
func TestAheadParts(t *testing.T) {
	file := testenv.AheadOfTimeNewest(t, "hello")
	pid, _ := testenv.StartAheadOfTimeNewest(t, file)
	e, r := openAhead(t, pid)
	parts := 0
	for start, f := range functions(t, file+".dbg", r.Module) {
		if _, ok := e.Ahead.Method(start); !ok {
			continue
		}
		const step = 32
		for at := start; at < start+arch.Addr(f.size); at += step {
			first, data, ok := r.Module.LanguageData(at)
			if !ok {
				continue
			}
			got, err := aot.MethodStart(e.Cache, first, data)
			if err != nil || got != start {
				t.Errorf("%v is in the method at %v, not %v: %v: %v", at, start, got, f.symbols, err)
				break
			}
			if first != start {
				parts++
			}
		}
	}
	if parts == 0 {
		t.Error("no method has parts")
	}
}

// function is a function with all its symbols.
type function struct {
	symbols []string
	size    uint64
}

// functions returns the functions of a file with symbols, by their addresses in a process.
func functions(t *testing.T, file string, in *module.Module) map[arch.Addr]function {
	t.Helper()
	_, symbols := testenv.Symbols(t, file)
	bias := in.Start - arch.Addr(in.Offset(in.Start))
	out := map[arch.Addr]function{}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF {
			at := bias + arch.Addr(s.Value)
			out[at] = function{append(out[at].symbols, s.Name), s.Size}
		}
	}
	return out
}

// isOne reports whether one of the symbols of a function is the symbol of a method. The compiler writes underscores
// for all characters but letters and digits, type arguments in angle brackets, a number at the end that tells
// overloads apart, and other names for a few types
// (src/coreclr/tools/aot/ILCompiler.Compiler/Compiler/NativeAotNameMangler.cs).
func isOne(symbols []string, method string) bool {
	for long, short := range map[string]string{
		"System.Byte.": "UInt8.", "System.SByte.": "Int8.", "System.Boolean.": "Bool.",
	} {
		if rest, ok := strings.CutPrefix(method, long); ok {
			method = short + rest
		}
	}
	want := letters(method)
	for _, s := range symbols {
		s = withoutArguments(s)
		cut := strings.TrimRight(s, "0123456789")
		got := []string{letters(s), letters(cut)}
		for _, g := range got {
			// The symbols leave out the namespace of types that the compiler knows.
			if strings.HasSuffix(g, want) || "System"+g == want {
				return true
			}
		}
	}
	return false
}

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, s)
}

// withoutArguments leaves out text in angle brackets.
func withoutArguments(s string) string {
	depth := 0
	return strings.Map(func(r rune) rune {
		switch r {
		case '<':
			depth++
		case '>':
			depth--
		default:
			if depth == 0 {
				return r
			}
		}
		return -1
	}, s)
}
