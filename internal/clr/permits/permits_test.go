package permits

import (
	"fmt"
	"strings"
	"testing"

	"clrsnap/internal/clr/name"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/ecma335/ecma335test"
	"clrsnap/internal/testenv"
)

// metadata is metadata made by hand. All indices are 2 bytes wide.
type metadata struct {
	ecma335test.Tables
	strings, blobs []byte
}

func (m *metadata) str(s string) uint32 {
	at := len(m.strings)
	m.strings = append(append(m.strings, s...), 0)
	return uint32(at)
}

func (m *metadata) blob(p ...byte) uint32 {
	at := len(m.blobs)
	m.blobs = append(append(m.blobs, byte(len(p))), p...)
	return uint32(at)
}

func (m *metadata) row(t ecma335.Table, cells ...uint32) { m.Row(int(t), cells...) }

// Tokens of members of the test's module, in the form of IL.
var (
	gate, shared, source = []byte{1, 0, 0, 4}, []byte{2, 0, 0, 4}, []byte{3, 0, 0, 4}
	enter, leave         = []byte{1, 0, 0, 6}, []byte{2, 0, 0, 6}
	getGate              = []byte{3, 0, 0, 6}
	wait, waitAsync      = []byte{1, 0, 0, 0x0a}, []byte{2, 0, 0, 0x0a}
	release, set         = []byte{3, 0, 0, 0x0a}, []byte{4, 0, 0, 0x0a}
	dispose, open        = []byte{5, 0, 0, 0x0a}, []byte{6, 0, 0, 0x0a}
	newGate, newSource   = []byte{7, 0, 0, 0x0a}, []byte{8, 0, 0, 0x0a}
)

const owner = 2 // the class of the fields and methods

// testModule is a class Shop.Bank with three fields, three methods and their callees.
func testModule(t testing.TB) *ecma335.Metadata {
	m := &metadata{strings: []byte{0}, blobs: []byte{0}}
	m.Wide = func(table, i int) bool {
		switch ecma335.Table(table) {
		case ecma335.TableTypeDef:
			return i%6 == 0
		case ecma335.TableMethodDef:
			return i%6 == 0
		}
		return false
	}
	m.row(ecma335.TableModule, 0, m.str("m.dll"), 0, 0, 0)
	m.row(ecma335.TableTypeRef, 2|1<<2, m.str("SemaphoreSlim"), m.str("System.Threading"))
	m.row(ecma335.TableTypeRef, 2|1<<2, m.str("TaskCompletionSource"), m.str("System.Threading.Tasks"))
	m.row(ecma335.TableTypeRef, 2|1<<2, m.str("Factory"), m.str("Other"))
	m.row(ecma335.TableTypeDef, 0, m.str("<Module>"), 0, 0, 1, 1)
	m.row(ecma335.TableTypeDef, 1, m.str("Bank"), m.str("Shop"), 0, 1, 1)
	const private, static = 1, 0x10
	field := m.blob(6, 0x1c)
	m.row(ecma335.TableField, private, m.str("gate"), field)
	m.row(ecma335.TableField, private|static, m.str("shared"), field)
	m.row(ecma335.TableField, private, m.str("source"), field)
	void, object := m.blob(0x20, 0, 1), m.blob(0x20, 0, 0x1c)
	m.row(ecma335.TableMethodDef, 0, 0, 0, m.str("Enter"), void, 1)
	m.row(ecma335.TableMethodDef, 0, 0, 0, m.str("Leave"), void, 1)
	m.row(ecma335.TableMethodDef, 0, 0, 0, m.str("get_Gate"), object, 1)
	const semaphore, completion, factory = 1<<3 | 1, 2<<3 | 1, 3<<3 | 1
	m.row(ecma335.TableMemberRef, semaphore, m.str("Wait"), void)
	m.row(ecma335.TableMemberRef, semaphore, m.str("WaitAsync"), object)
	m.row(ecma335.TableMemberRef, semaphore, m.str("Release"), void)
	m.row(ecma335.TableMemberRef, completion, m.str("SetResult"), void)
	m.row(ecma335.TableMemberRef, factory, m.str("Dispose"), void)
	m.row(ecma335.TableMemberRef, factory, m.str("Open"), m.blob(0, 0, 0x1c))
	m.row(ecma335.TableMemberRef, semaphore, m.str(".ctor"), m.blob(0x20, 1, 1, 8))
	m.row(ecma335.TableMemberRef, completion, m.str(".ctor"), void)
	md, err := ecma335.Parse(ecma335test.Container(ecma335test.Assembly, []string{"#~", "#Strings", "#Blob"},
		[][]byte{m.Bytes(), m.strings, m.blobs}))
	if err != nil {
		t.Fatal(err)
	}
	return md
}

// testBuilder reads methods of the test's module. Enter takes a permit of this.gate, and Leave gives a permit.
func testBuilder(t testing.TB) *builder {
	r := New(nil, nil, nil)
	m := &module{Assembly: name.Assembly{Name: "m", Base: 1, Metadata: testModule(t)}, tokens: map[ecma335.Token]verb{}}
	m.find()
	r.modules[0] = m
	at := func(depth int, parts ...any) *Code {
		b := builder{r: r, m: m, depth: depth}
		if err := b.look(il(parts...)); err != nil {
			t.Fatal(err)
		}
		return &b.code
	}
	r.codes[codeKey{0, 1, 1}] = at(1, 2, 0x7b, gate, 0x6f, wait, 0x2a)
	r.codes[codeKey{0, 2, 1}] = at(1, 2, 0x7b, gate, 0x6f, release, 0x2a)
	r.codes[codeKey{0, 3, 1}] = at(1, 2, 0x7b, gate, 0x2a)
	return &builder{r: r, m: m}
}

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

// codeText writes the Code of a method.
func codeText(c *Code) string {
	var out []string
	for _, s := range c.Sections {
		verb := "holds"
		if s.Closes {
			verb = "has"
		}
		out = append(out, fmt.Sprintf("%s %v %d-%d", verb, s.Object, s.From, s.To))
	}
	for _, p := range c.Promises {
		out = append(out, fmt.Sprintf("completes %v %d", p.Object, p.At))
	}
	for _, v := range c.takes {
		out = append(out, "takes "+v.object.String())
	}
	for _, v := range c.gives {
		out = append(out, "gives "+v.String())
	}
	return strings.Join(out, "; ")
}

var codes = []struct {
	name, want string
	il         []byte
}{
	{"Wait, Release", "holds arg0.gate 6-17", il(2, 0x7b, gate, 0x6f, wait, 2, 0x7b, gate, 0x6f, release, 0x2a)},
	{"of a static field", "holds Shop.Bank::shared 5-15", il(0x7e, shared, 0x6f, wait, 0x7e, shared, 0x6f, release)},
	{"of a property", "holds arg0.Shop.Bank::get_Gate() 6-17",
		il(2, 0x28, getGate, 0x6f, wait, 2, 0x28, getGate, 0x6f, release)},
	{"of another one", "takes arg0.gate; gives Shop.Bank::shared",
		il(2, 0x7b, gate, 0x6f, wait, 0x7e, shared, 0x6f, release)},
	{"twice", "holds arg0.gate 6-17; holds arg0.gate 28-39", il(2, 0x7b, gate, 0x6f, wait, 2, 0x7b, gate, 0x6f, release,
		2, 0x7b, gate, 0x6f, wait, 2, 0x7b, gate, 0x6f, release)},
	{"the other way round", "takes arg0.gate; gives arg0.gate",
		il(2, 0x7b, gate, 0x6f, release, 2, 0x7b, gate, 0x6f, wait)},
	{"what a call returns is not known", "", il(0x28, open, 0x6f, wait, 0x28, open, 0x6f, release)},
	{"WaitAsync without an await", "holds arg0.gate 6-18",
		il(2, 0x7b, gate, 0x6f, waitAsync, 0x26, 2, 0x7b, gate, 0x6f, release)},
	{"SetResult", "completes arg0.source 6", il(2, 0x7b, source, 0x6f, set)},
	{"using", "has arg0.gate 6-17", il(2, 0x28, open, 0x7d, gate, 2, 0x7b, gate, 0x6f, dispose)},
	{"using a variable", "has loc0 5-7", il(0x28, open, 0x0a, 6, 0x6f, dispose)},
	{"null is not disposed of", "", il(2, 0x14, 0x7d, shared, 2, 0x7b, shared, 0x6f, dispose)},
	{"calls that wait and release", "holds arg0.gate 1-7", il(2, 0x28, enter, 2, 0x28, leave)},
	{"of another object", "holds arg1.gate 1-7", il(3, 0x28, enter, 3, 0x28, leave)},
	{"of different objects", "takes arg1.gate; gives arg0.gate", il(3, 0x28, enter, 2, 0x28, leave)},
}

func TestCode(t *testing.T) {
	for _, tt := range codes {
		b := testBuilder(t)
		if err := b.look(tt.il); err != nil || codeText(&b.code) != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, codeText(&b.code), err, tt.want)
		}
	}
}

// TestCodeMuch: a method with more actions than are kept is not known.
func TestCodeMuch(t *testing.T) {
	b := testBuilder(t)
	var code []byte
	for range maxEvents + 1 {
		code = append(code, il(0x7e, shared, 0x6f, wait)...)
	}
	if err := b.look(code); err == nil {
		t.Errorf("%d sections", len(b.code.Sections))
	}
}

func TestAt(t *testing.T) {
	c := Code{Sections: []Section{{From: 10, To: 20}}, Promises: []Promise{{At: 30}}}
	for _, tt := range []struct {
		from, to       uint32
		held, promised int
	}{
		{5, 10, 0, 1}, {10, 15, 0, 1}, {11, 15, 1, 1}, {15, 20, 1, 1}, {15, 21, 0, 1}, {20, 21, 0, 1}, {30, 31, 0, 0},
	} {
		held, promised := c.At(tt.from, tt.to)
		if len(held) != tt.held || len(promised) != tt.promised {
			t.Errorf("%d-%d: %v, %v, want %d and %d", tt.from, tt.to, held, promised, tt.held, tt.promised)
		}
	}
}

var usages = []struct {
	name  string
	field []byte
	il    [][]byte
	want  Use
}{
	{"made with one permit", gate, [][]byte{il(2, 0x17, 0x73, newGate, 0x7d, gate)}, Use{Count: 1, Own: true}},
	{"made in two ways", gate,
		[][]byte{il(2, 0x17, 0x73, newGate, 0x7d, gate), il(2, 0x18, 0x73, newGate, 0x7d, gate)}, Use{Own: true}},
	{"by way of a variable", gate, [][]byte{il(0x19, 0x73, newGate, 0x0a, 2, 6, 0x7d, gate)}, Use{Count: 3, Own: true}},
	{"not made here", gate, [][]byte{il(2, 3, 0x7d, gate)}, Use{}},
	{"taken and released", gate, [][]byte{il(2, 0x17, 0x73, newGate, 0x7d, gate),
		il(2, 0x7b, gate, 0x6f, wait, 2, 0x7b, gate, 0x6f, release, 0x2a)},
		Use{Count: 1, Own: true, Takes: []uint32{2}, Gives: []uint32{2}}},
	{"released elsewhere", gate, [][]byte{il(2, 0x17, 0x73, newGate, 0x7d, gate),
		il(2, 0x7b, gate, 0x6f, wait, 2, 0x7b, gate, 0x6f, release, 0x2a), il(2, 0x7b, gate, 0x6f, release, 0x2a)},
		Use{Count: 1, Own: true, Uneven: true, Takes: []uint32{2}, Gives: []uint32{2, 3}}},
	{"taken and kept", gate, [][]byte{il(2, 0x17, 0x73, newGate, 0x7d, gate), il(2, 0x7b, gate, 0x6f, wait, 0x2a)},
		Use{Count: 1, Own: true, Uneven: true, Takes: []uint32{2}}},
	{"made without permits", gate, [][]byte{il(2, 0x16, 0x73, newGate, 0x7d, gate)}, Use{Own: true, Signal: true}},
	{"completed", source, [][]byte{il(2, 0x73, newSource, 0x7d, source), il(2, 0x7b, source, 0x6f, set)},
		Use{Own: true, Completes: []uint32{2}}},
	{"completed unless null", source,
		[][]byte{il(2, 0x73, newSource, 0x7d, source), il(2, 0x7b, source, 0x25, 0x2d, 2, 0x26, 0x2a, 0x6f, set)},
		Use{Own: true, Completes: []uint32{2}}},
	{"returned", source, [][]byte{il(2, 0x73, newSource, 0x7d, source), il(2, 0x7b, source, 0x2a)}, Use{}},
	{"passed on", source, [][]byte{il(2, 0x73, newSource, 0x7d, source), il(2, 2, 0x7b, source, 0x73, newGate)}, Use{}},
	{"in a variable", source, [][]byte{il(2, 0x73, newSource, 0x7d, source), il(2, 0x7b, source, 0x0a, 6, 0x6f, set)},
		Use{Own: true, Completes: []uint32{2}}},
	{"in a variable that is set again", source,
		[][]byte{il(2, 0x73, newSource, 0x7d, source), il(2, 0x7b, source, 0x0a, 3, 0x0a, 6, 0x2a)}, Use{}},
	{"in an array", source, [][]byte{il(2, 0x73, newSource, 0x7d, source), il(3, 0x16, 2, 0x7b, source, 0xa2)}, Use{}},
	{"this or that", source,
		[][]byte{il(2, 0x73, newSource, 0x7d, source), il(3, 0x2d, 3, 3, 0x2b, 6, 2, 0x7b, source, 0x6f, set)}, Use{}},
}

func TestUse(t *testing.T) {
	md := testModule(t)
	for _, tt := range usages {
		field := ecma335.MakeToken(ecma335.TableField, uint32(tt.field[0]))
		u := usage{md: md, field: field, out: &Use{Own: true}, count: -1}
		for i, code := range tt.il {
			actions, err := md.Evaluate(code)
			if err != nil {
				t.Fatal(err)
			}
			u.method(uint32(i)+1, actions)
		}
		if got := u.result(); fmt.Sprint(*got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, *got, tt.want)
		}
	}
}

func TestPrivate(t *testing.T) {
	md := testModule(t)
	if own, err := private(md, ecma335.MakeToken(ecma335.TableField, 1), owner); !own || err != nil {
		t.Errorf("gate: %v, %v", own, err)
	}
	if methods, err := around(md, owner); err != nil || fmt.Sprint(methods) != "[1 2 3]" {
		t.Errorf("methods: %v, %v", methods, err)
	}
}

// FuzzCode: in any bytes, all sections and promises lie within the bytes, and the memory has a bound.
func FuzzCode(f *testing.F) {
	for _, tt := range codes {
		f.Add(tt.il)
	}
	for _, tt := range usages {
		for _, code := range tt.il {
			f.Add(code)
		}
	}
	b := testBuilder(f)
	f.Fuzz(func(t *testing.T, code []byte) {
		b := builder{r: b.r, m: b.m}
		testenv.Allocates(t, len(code), 8192, 1<<18, func() {
			if b.look(code) != nil {
				b.code = Code{}
			}
		})
		for _, s := range b.code.Sections {
			if int(s.To) >= len(code) || s.Object == nil {
				t.Fatalf("% x: %+v", code, s)
			}
		}
		for _, p := range b.code.Promises {
			if int(p.At) >= len(code) || p.Object == nil {
				t.Fatalf("% x: %+v", code, p)
			}
		}
	})
}
