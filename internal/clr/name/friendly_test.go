package name

import (
	"strings"
	"testing"

	"clrsnap/internal/testenv"
)

func TestFriendlyName(t *testing.T) {
	const hidden = "Ns.<x>F66B43C0D0017080A28509B59F683B4490934192233D396665A6244410C38EFD5__Hid"
	for _, tt := range []struct {
		typ, method string
		hint        Hint
		want        string // String()
		kind        Kind
		arity       int
	}{
		{"Ns.Outer", "Run", NoHint, "Ns.Outer.Run", Plain, 0},
		{"Ns.Outer`1+In`2", "Run", NoHint, "Ns.Outer.In.Run", Plain, 0},
		{"Ns.Outer", ".ctor", NoHint, "Ns.Outer..ctor", Plain, 0},
		{"Ns.Outer", ".cctor", NoHint, "Ns.Outer..cctor", Plain, 0},
		{"Ns.Outer", "get_X", NoHint, "Ns.Outer.get_X", Plain, 0},
		{"Ns.Outer", "System.IDisposable.Dispose", NoHint, "Ns.Outer.System.IDisposable.Dispose", Plain, 0},
		{"Program", "<Main>$", NoHint, "Program.Main", Plain, 0},
		{"Program", "<Main>", NoHint, "Program.Main{entry}", EntryPoint, 0},
		{"Ns.R", "<Clone>$", NoHint, "Ns.R.<Clone>$", Plain, 0},
		// lambdas
		{"Ns.Outer+<>c", "<Main>b__9_8", NoHint, "Ns.Outer.Main{lambda 9_8}", Lambda, 0},
		{"Ns.Outer+<>c__DisplayClass9_0", "<Main>b__8", NoHint, "Ns.Outer.Main{lambda 9_8}", Lambda, 0},
		{"Ns.Outer+<>c__DisplayClass9_0#1", "<Main>b__8#1", NoHint, "Ns.Outer.Main{lambda 9_8#1}", Lambda, 0},
		{"App.Outer`1+<>c__9`1", "<Gen>b__9_1", NoHint, "App.Outer.Gen{lambda 9_1}", Lambda, 1},
		{"App.Outer`1+<>c__DisplayClass9_0`1", "<Gen>b__3", NoHint, "App.Outer.Gen{lambda 9_3}", Lambda, 1},
		{"App.Outer`1", "<.ctor>b__1_0", NoHint, "App.Outer..ctor{lambda 1_0}", Lambda, 0},
		{"App.Outer`1+<>c", "<get_P>b__8_0", NoHint, "App.Outer.get_P{lambda 8_0}", Lambda, 0},
		{"Program+<>c__DisplayClass0_0", "<<Main>$>b__0", NoHint, "Program.Main{lambda 0_0}", Lambda, 0},
		{"A+<>c", "<System.Collections.Generic.IEnumerable<T>.GetEnumerator>b__0_0", NoHint,
			"A.System.Collections.Generic.IEnumerable<T>.GetEnumerator{lambda 0_0}", Lambda, 0},
		// local functions
		{"Ns.Outer", "<Foo>g__Local|3_0", NoHint, "Ns.Outer.Foo{local Local}", LocalFunction, 0},
		{"Program", "<<Main>$>g__Foo|0_0", NoHint, "Program.Main{local Foo}", LocalFunction, 0},
		{"App.Outer`1+<>c__DisplayClass2_0", "<RunAsync>g__L|2", NoHint, "App.Outer.RunAsync{local L}",
			LocalFunction, 0},
		// state machines
		{"Ns.Outer+<RunAsync>d__5", "MoveNext", Async, "Ns.Outer.RunAsync{async}", StateMachine, 0},
		{"Ns.Outer+<RunAsync>d__5", "MoveNext", NoHint, "Ns.Outer.RunAsync", StateMachine, 0},
		{"Ns.Outer+<RunAsync>d__5", "SetStateMachine", NoHint, "Ns.Outer.RunAsync{async SetStateMachine}",
			StateMachine, 0},
		{"Program+<<Main>$>d__0", "MoveNext", Async, "Program.Main{async}", StateMachine, 0},
		{"App.Outer`1+<Iter>d__3`1", "MoveNext", Iterator, "App.Outer.Iter{iterator}", StateMachine, 1},
		{"App.Outer`1+<Iter>d__3`1", "System.IDisposable.Dispose", NoHint,
			"App.Outer.Iter{iterator Dispose}", StateMachine, 1},
		{"App.Outer`1+<Iter>d__3`1", "<>m__Finally1", NoHint, "App.Outer.Iter{iterator finally}", StateMachine, 1},
		{"App.Outer`1+<Iter>d__3`1", ".ctor", NoHint, "App.Outer.Iter{state machine .ctor}", StateMachine, 1},
		{"App.Outer`1+<AIter>d__4", "MoveNext", AsyncIterator, "App.Outer.AIter{async iterator}", StateMachine, 0},
		{"App.Outer`1+<AIter>d__4", "System.Collections.Generic.IAsyncEnumerator<System.Int32>.get_Current", NoHint,
			"App.Outer.AIter{async iterator get_Current}", StateMachine, 0},
		{"App.Outer`1+<System-Collections-Generic-IEnumerable<T>-GetEnumerator>d__5", "MoveNext", Iterator,
			"App.Outer.System.Collections.Generic.IEnumerable<T>.GetEnumerator{iterator}", StateMachine, 0},
		// one inside the other
		{"App.Outer`1+<>c__DisplayClass2_0+<<RunAsync>b__0>d", "MoveNext", Async,
			"App.Outer.RunAsync{lambda 2_0}{async}", StateMachine, 0},
		{"App.Outer`1+<<RunAsync>g__Loc|2_1>d", "MoveNext", Async, "App.Outer.RunAsync{local Loc}{async}",
			StateMachine, 0},
		{"A+<>c__DisplayClass2_0`1+<<Gen>g__L|0>d`1", "MoveNext", Async, "A.Gen{local L}{async}", StateMachine, 2},
		{"A+<It>d__2+<>c__DisplayClass0_0", "<MoveNext>b__1", NoHint, "A.It{lambda 0_1}", Lambda, 0},
		{"A+<>c+<<-ctor>b__0_0>d", "MoveNext", Async, "A..ctor{lambda 0_0}{async}", StateMachine, 0},
		{hidden, "Go", NoHint, "Ns.Hid.Go", Plain, 0},
		{hidden + "+<>c", "<Go>b__0_0", NoHint, "Ns.Hid.Go{lambda 0_0}", Lambda, 0},
		// other languages
		{"Ns.Outer+VB$StateMachine_5_RunAsync", "MoveNext", NoHint, "Ns.Outer.RunAsync", StateMachine, 0},
		{"Ns.Outer+VB$StateMachine_5_RunAsync", "MoveNext", Async, "Ns.Outer.RunAsync{async}", StateMachine, 0},
		{"Ns.Outer+VB$StateMachine_5__Run_1`1", "MoveNext", Iterator, "Ns.Outer._Run_1{iterator}", StateMachine, 1},
		{"Ns.Outer+_Closure$__", "_Lambda$__9-0", NoHint, "Ns.Outer.{lambda 9-0}", Lambda, 0},
		{"Ns.Outer", "_Lambda$__9-0", NoHint, "Ns.Outer.{lambda 9-0}", Lambda, 0},
		{"Ns.Outer+_Closure$__9-0", "_Lambda$__1", NoHint, "Ns.Outer.{lambda 9-1}", Lambda, 0},
		{"Ns.Outer+_Closure$__R9-0", "_Lambda$__R1", NoHint, "Ns.Outer.{lambda 9-1}", Lambda, 0},
		{"Ns.Outer+_Closure$__+VB$StateMachine___Lambda$__9-0", "MoveNext", Async,
			"Ns.Outer.{lambda 9-0}{async}", StateMachine, 0},
		{"Ns.Outer+_Closure$__9-0+VB$StateMachine___Lambda$__1", "MoveNext", Async,
			"Ns.Outer.{lambda 9-1}{async}", StateMachine, 0},
		{"Ns.Outer+loop@12-1", "Invoke", NoHint, "Ns.Outer.loop{lambda 12-1}", Lambda, AllOfThem},
		{"Ns.Outer+loop@12T", "Specialize", NoHint, "Ns.Outer.loop{lambda 12}", Lambda, AllOfThem},
		{"Ns.Outer`1+clo@7", "MoveNext", Async, "Ns.Outer.clo{async}", StateMachine, AllOfThem},
		{"Ns.Outer+work@20-1", "SetStateMachine", Async, "Ns.Outer.work{async SetStateMachine}", StateMachine,
			AllOfThem},
		{"Ns.Outer+items@30", "GenerateNext", NoHint, "Ns.Outer.items{iterator}", StateMachine, AllOfThem},
		{"Ns.Outer+Pipe #1 input@30", "Invoke", NoHint, "Ns.Outer.Pipe #1 input{lambda 30}", Lambda, AllOfThem},
	} {
		f := FriendlyName(tt.typ, tt.method, tt.hint)
		if got := f.String(); got != tt.want || f.Kind != tt.kind || f.MethodArity != tt.arity {
			t.Errorf("FriendlyName(%q, %q, %d) = %q kind %d arity %d, want %q kind %d arity %d",
				tt.typ, tt.method, tt.hint, got, f.Kind, f.MethodArity, tt.want, tt.kind, tt.arity)
		}
	}
}

func TestFriendlyNameUnchanged(t *testing.T) {
	for _, tt := range [][2]string{
		{"", ""}, {"", "<"}, {"<", ">"}, {"A+", "<>"}, {"A+<>d__1", "MoveNext"}, {"A", "<>b__0_0"},
		{"A+<", "MoveNext"}, {"A+<Foo", "MoveNext"},
		{"A>+<>c", "<X>b__0"}, {"A+<>c", ".ctor"}, {"A+<>c", "<Main>b__x"}, {"A+<>c", "<Main>z__0"}, {"A+<>cx", "F"},
		{"A+<>c__", "<X>b__0y"}, {"A+<X>dd", "MoveNext"}, {"A+<X>d__", "MoveNext"}, {"A+<X>e__FixedBuffer", "F"},
		{"A", "<>n__0"}, {"A", "<X>g__|0_0"}, {"A", "<X>g__L"}, {"A", "<X>g__L|"}, {"A", "<<X>b__0"},
		{"<Module>", ".cctor"}, {"<PrivateImplementationDetails>", "ComputeStringHash"},
		{"<>f__AnonymousType0`2", "get_A"}, {"<>c", "<X>b__0x"}, {"A+VB$StateMachine_", "MoveNext"},
		{"A+@12", "Invoke"}, {"A+x@y", "Invoke"},
		{"A", strings.Repeat("<", 100) + "X" + strings.Repeat(">b__0", 100)},
		{"A+" + strings.Repeat("<", 100) + "X" + strings.Repeat(">d", 100), "MoveNext"},
	} {
		if f := FriendlyName(tt[0], tt[1], Async); f != (Friendly{Type: tt[0], Method: tt[1]}) {
			t.Errorf("FriendlyName(%q, %q) = %+v, want it unchanged", tt[0], tt[1], f)
		}
	}
}

// A closure of F# has members that nobody wrote; an object expression has members that somebody wrote.
func TestFSharpUnchanged(t *testing.T) {
	for _, hint := range []Hint{NoHint, Iterator} {
		for _, method := range []string{"ToString", ".ctor", "Dispose"} {
			if f := FriendlyName("A+x@1", method, hint); f != (Friendly{Type: "A+x@1", Method: method}) {
				t.Errorf("FriendlyName(A+x@1, %s, %d) = %+v, want it unchanged", method, hint, f)
			}
		}
	}
}

func TestFriendlyShort(t *testing.T) {
	for _, tt := range []struct{ typ, method, want string }{
		{"Ns.Sub.Outer`1+In", "Run", "Outer.In.Run"},
		{"Ns.Outer", ".ctor", "Outer..ctor"},
		{"Ns.Outer", "System.IDisposable.Dispose", "Outer.IDisposable.Dispose"},
		{"Ns.Outer", "System.Collections.Generic.IDictionary<System.Int32,A.B[]>.get_Item",
			"Outer.IDictionary<Int32,B[]>.get_Item"},
		{"Ns.Outer+<>c", "<Main>b__9_8", "Outer.Main{lambda 9_8}"},
		{"Ns.<>f__AnonymousType0`2", "get_A", "<>f__AnonymousType0.get_A"},
		{"<Module>", ".cctor", "<Module>..cctor"},
		{"A.", "a.", "A..a."},
	} {
		if got := FriendlyName(tt.typ, tt.method, NoHint).Short(); got != tt.want {
			t.Errorf("Short(%q, %q) = %q, want %q", tt.typ, tt.method, got, tt.want)
		}
	}
}

func FuzzFriendlyName(f *testing.F) {
	f.Add("Ns.Outer+<>c__DisplayClass9_0`1+<<Main>b__8>d`1", "MoveNext", byte(1))
	f.Add("A+VB$StateMachine_5_RunAsync", "_Lambda$__R1", byte(2))
	f.Add("A+loop@12-1", "<X>g__L|0_0", byte(200))
	f.Fuzz(func(t *testing.T, typ, method string, hint byte) {
		var n Friendly
		testenv.Allocates(t, len(typ)+len(method), 100, 1<<16, func() { n = FriendlyName(typ, method, Hint(hint)) })
		if len(n.String()) > 3*(len(typ)+len(method))+400 || n.Short() == "" {
			t.Fatalf("%+v", n)
		}
	})
}

func BenchmarkFriendlyName(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		FriendlyName("App.Outer`1+<>c__DisplayClass2_0+<<RunAsync>b__0>d", "MoveNext", Async)
	}
}

// String writes the name for display: nested types after a dot, no arities.
func (f Friendly) String() string { return displayType(f.Type) + "." + f.Method + f.Suffix }

// Short is String without namespaces.
func (f Friendly) Short() string {
	return displayType(cutNamespace(f.Type)) + "." + shortMember(f.Method) + f.Suffix
}

// displayType writes nested types after a dot and leaves arities out.
func displayType(s string) string {
	segs, ok := splitNested(s)
	if !ok {
		return s
	}
	for i := range segs {
		segs[i], _ = cutArity(segs[i])
	}
	return strings.Join(segs, ".")
}

// cutNamespace cuts the namespace off a metadata type name.
func cutNamespace(s string) string {
	end := len(s)
	if i := strings.IndexAny(s, "+<`"); i >= 0 {
		end = i
	}
	if dot := strings.LastIndexByte(s[:end], '.'); dot >= 0 && dot+1 < len(s) {
		return s[dot+1:]
	}
	return s
}
