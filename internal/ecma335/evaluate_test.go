package ecma335

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// gate is a class with two fields, a method of each kind and references to a semaphore's methods.
func gate(t testing.TB) *Metadata {
	b := newBuilder()
	b.row(TableModule, 0, b.str("m.dll"), 0, 0, 0)
	b.row(TableTypeRef, 2|1<<2, b.str("SemaphoreSlim"), b.str("System.Threading"))
	b.row(TableTypeDef, 0, b.str("<Module>"), 0, 0, 1, 1)
	b.row(TableTypeDef, 1, b.str("Gate"), b.str("Ns"), 0, 1, 1)
	field := b.blob(6, 0x1c)
	b.row(TableField, 1, b.str("one"), field)
	b.row(TableField, 0x11, b.str("shared"), field)
	object := b.blob(0x20, 0, 0x1c) // instance object ()
	b.row(TableMethodDef, 0, 0, 0, b.str("get_One"), object, 1)
	b.row(TableMethodDef, 0, 0, 0x10, b.str("Make"), b.blob(0, 1, 0x1c, 8), 1) // static object (int)
	b.row(TableMemberRef, 1<<3|1, b.str("Wait"), b.blob(0x20, 0, 1))
	b.row(TableMemberRef, 1<<3|1, b.str(".ctor"), b.blob(0x20, 1, 1, 8))
	m, err := Parse(b.bytes())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// text writes actions with their values.
func text(actions []Action) string {
	var out []string
	for _, a := range actions {
		var values []string
		for _, v := range a.Arguments {
			values = append(values, v.String())
		}
		switch a.Kind {
		case Calling, Creating:
			out = append(out, fmt.Sprintf("%s(%s)", a.Member.Name, strings.Join(values, ", ")))
		case Storing:
			of := "static"
			if a.Object != nil {
				of = a.Object.String()
			}
			out = append(out, fmt.Sprintf("%s.%s = %s", of, a.Member.Name, a.Value))
		case Setting:
			out = append(out, fmt.Sprintf("loc%d = %s", a.Variable, a.Value))
		case Returning:
			out = append(out, "return "+a.Value.String())
		case Losing:
			out = append(out, "lost "+a.Value.String())
		}
	}
	return strings.Join(out, "; ")
}

// Operands of the tests' instructions.
var (
	one, shared       = []byte{1, 0, 0, 4}, []byte{2, 0, 0, 4}
	getOne, makeGate  = []byte{1, 0, 0, 6}, []byte{2, 0, 0, 6}
	wait, constructor = []byte{1, 0, 0, 0x0a}, []byte{2, 0, 0, 0x0a}
)

func il(parts ...any) (out []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			out = append(out, byte(p))
		case []byte:
			out = append(out, p...)
		}
	}
	return out
}

var evaluations = []struct {
	name, want string
	il         []byte
}{
	{"ldarg.0; ldfld; callvirt; ret", "Wait(arg0.one); return ?", il(2, 0x7b, one, 0x6f, wait, 0x2a)},
	{"ldsfld; callvirt", "Wait(Ns.Gate::shared)", il(0x7e, shared, 0x6f, wait)},
	{"ldarg.0; call get_One; callvirt", "get_One(arg0); Wait(arg0.Ns.Gate::get_One())",
		il(2, 0x28, getOne, 0x6f, wait)},
	{"a variable that is set once", "loc0 = arg0.one; Wait(arg0.one); Wait(arg0.one)",
		il(2, 0x7b, one, 0x0a, 6, 0x6f, wait, 6, 0x6f, wait)},
	{"a variable that is set twice", "loc0 = arg0.one; loc0 = arg1; Wait(loc0)",
		il(2, 0x7b, one, 0x0a, 3, 0x0a, 6, 0x6f, wait)},
	{"a variable whose address is taken", "loc0 = arg0.one; Wait(loc0)",
		il(2, 0x7b, one, 0x0a, 0x12, 0, 0x26, 6, 0x6f, wait)},
	{"an argument that is set", "Wait(?)", il(2, 0x10, 1, 3, 0x6f, wait)},
	{"ldc.i4.2; newobj; stfld", ".ctor(2); arg0.one = 2..ctor@2", il(2, 0x18, 0x73, constructor, 0x7d, one)},
	{"dup", "loc0 = arg0; Wait(arg0)", il(2, 0x25, 0x0a, 0x6f, wait)},
	{"castclass", "Wait(arg1)", il(3, 0x74, 1, 0, 0, 1, 0x6f, wait)},
	{"a static method's result", "Make(5); Wait(5.Make@1)", il(0x1b, 0x28, makeGate, 0x6f, wait)},
	{"a ? b : c", "Wait(?)", il(2, 0x2d, 3, 3, 0x2b, 1, 2, 0x6f, wait)},
	{"a ? a : a", "Wait(arg1)", il(2, 0x2d, 3, 3, 0x2b, 1, 3, 0x6f, wait)},
	{"a ? field : b", "lost arg0.one; Wait(?)", il(3, 0x2d, 3, 2, 0x2b, 6, 2, 0x7b, one, 0x6f, wait)},
	{"a field in an array", "lost arg0.one", il(3, 0x16, 2, 0x7b, one, 0xa2)},
	{"a field as an argument's new value", "lost arg0.one; Wait(?)", il(2, 0x7b, one, 0x10, 1, 3, 0x6f, wait)},
	{"a field that is null", "return ?; Wait(arg0.one)", il(2, 0x7b, one, 0x25, 0x2d, 2, 0x26, 0x2a, 0x6f, wait)},
	{"behind a return", "return arg0; Wait(arg1)", il(2, 0x2a, 3, 0x6f, wait)},
	{"a handler begins with an exception", "Wait(arg0)", il(2, 0xde, 1, 0x26, 2, 0x6f, wait)},
	{"too little on the stack", "Wait(?)", il(0x6f, wait)},
}

func TestEvaluate(t *testing.T) {
	m := gate(t)
	for _, tt := range evaluations {
		got, err := m.Evaluate(tt.il)
		if err != nil || text(got) != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, text(got), err, tt.want)
		}
	}
	for _, b := range [][]byte{{0x28, 9, 0, 0, 6}, {0x24}, {0x28, 1, 0}, make([]byte, maxEvaluated+1)} {
		if got, err := m.Evaluate(b); err == nil {
			t.Errorf("% x: %v", b[:min(len(b), 8)], text(got))
		}
	}
}

func TestSubstitute(t *testing.T) {
	m := gate(t)
	actions, err := m.Evaluate(il(2, 0x28, getOne, 0x6f, wait, 3, 0x6f, wait, 0x7e, shared, 0x6f, wait))
	if err != nil {
		t.Fatal(err)
	}
	other := &Value{Kind: Local, Number: 7}
	for i, want := range map[int]string{1: "loc7.Ns.Gate::get_One()", 2: "", 3: "Ns.Gate::shared"} {
		got := ""
		if v := actions[i].Arguments[0].Substitute(other); v != nil {
			got = v.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", actions[i].Arguments[0], got, want)
		}
	}
}

// TestRealEvaluate evaluates every method of the framework's core. Methods without branches or handlers leave
// nothing on the stack when they return: each instruction takes the right number of values.
func TestRealEvaluate(t *testing.T) {
	layer.Live(t)
	b, err := os.ReadFile(filepath.Join(kit(t), "net10", "System.Private.CoreLib.dll"))
	if err != nil {
		t.Fatal(err)
	}
	md, resolve := openImage(t, b)
	methods, straight := 0, 0
	for rid := uint32(1); rid <= md.Rows(TableMethodDef); rid++ {
		rva, err := md.MethodRVA(rid)
		if err != nil || rva == 0 {
			continue
		}
		body := b[resolve(rva):]
		at, size, err := BodyHeader(body[:min(len(body), MaxBodyHeader)])
		if err != nil {
			t.Fatal(err)
		}
		code := body[at : at+size]
		def, err := md.MethodDef(rid)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := md.Evaluate(code); err != nil {
			t.Errorf("%s: %v", def.Name, err)
		}
		if methods++; hasJumps(t, code) {
			continue
		}
		straight++
		f, err := md.Member(MakeToken(TableMethodDef, rid))
		if err != nil {
			t.Fatal(err)
		}
		want := 1
		if f.Void {
			want = 0
		}
		if got, ok := depthAtEnd(t, md, code); ok && got != want {
			t.Errorf("%s: %d values on the stack at its end, want %d: % x", def.Name, got, want, code)
		}
	}
	if t.Logf("%d methods, %d without jumps", methods, straight); methods < 20000 || straight < 10000 {
		t.Error("too few")
	}
}

// hasJumps reports whether code can go on elsewhere than at the next instruction.
func hasJumps(t *testing.T, code []byte) bool {
	for at := 0; at < len(code); {
		op, _, next, err := instruction(code, at)
		if err != nil {
			t.Fatal(err)
		}
		if op >= opBrShort && op <= opSwitch && op != 0x2a || op == opLeave || op == opLeaveSh || op == opEndFinally {
			return true
		}
		at = next
	}
	return false
}

// depthAtEnd is how many values are on the stack before the only return; false: there is no single return.
func depthAtEnd(t *testing.T, md *Metadata, code []byte) (int, bool) {
	if len(code) == 0 || code[len(code)-1] != byte(opRet) {
		return 0, false
	}
	stores, err := storesOf(code)
	if err != nil {
		t.Fatal(err)
	}
	e := evaluation{
		m: md, il: code, members: map[Token]*Member{}, forward: map[int][]*Value{}, variables: map[int32]*Value{},
		lost: map[*Value]bool{}, live: true, stores: stores,
	}
	for at := 0; at < len(code)-1; {
		op, operand, next, err := instruction(code, at)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.step(at, op, operand, next); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	return len(e.stack), true
}

// TestMembersOwn: a type's fields and methods name the type as their owner.
func TestMembersOwn(t *testing.T) {
	m := gate(t)
	methods, err := m.Methods(2)
	if err != nil || !slices.Equal(methods, []uint32{1, 2}) {
		t.Errorf("methods: %v, %v", methods, err)
	}
	for rid, want := range map[uint32]string{1: "one", 2: "shared"} {
		owner, err := m.FieldOwner(rid)
		f, err2 := m.Member(MakeToken(TableField, rid))
		if err != nil || err2 != nil || owner != 2 || f.Name != want || f.Owner != "Ns.Gate" {
			t.Errorf("field %d: owner %d, %+v, %v, %v", rid, owner, f, err, err2)
		}
	}
	if _, err := m.FieldOwner(3); err == nil {
		t.Error("field 3 has an owner")
	}
	if list := m.Nested(2); len(list) != 0 {
		t.Errorf("nested: %v", list)
	}
}

// FuzzEvaluate: any bytes give actions in the order of their offsets, or an error, for little memory.
func FuzzEvaluate(f *testing.F) {
	m := gate(f)
	for _, tt := range evaluations {
		f.Add(tt.il)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var actions []Action
		testenv.Allocates(t, len(b), 4096, 1<<18, func() { actions, _ = m.Evaluate(b) })
		for i, a := range actions {
			if int(a.At) >= len(b) || i > 0 && a.At < actions[i-1].At {
				t.Fatalf("% x: %d", b, a.At)
			}
			for _, v := range a.Arguments {
				_ = v.String()
				v.Lasts()
			}
		}
	})
}
