package session

import (
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/profile"
)

func TestInsertAwaiting(t *testing.T) {
	frames := []profile.Frame{
		{Short: "leaf", SP: 0x100}, {Short: "Load", SP: 0x200}, {Short: "box", SP: 0x300}, {Short: "run", SP: 0x340},
		{Short: "inlined", SP: 0x400}, {Short: "Save", SP: 0x400}, {Short: "box", SP: 0x500},
	}
	waiting := func(names ...string) (out []profile.Frame) {
		for _, n := range names {
			out = append(out, profile.Frame{Kind: profile.Async, Short: n})
		}
		return out
	}
	for _, tt := range []struct {
		list []AwaitingAt
		want string
	}{
		{nil, "leaf Load box run inlined Save box"},
		{[]AwaitingAt{{SP: 0x300, Frames: waiting("A", "B")}}, "leaf Load A B box run inlined Save box"},
		{[]AwaitingAt{{SP: 0x300, Frames: waiting("A")}, {SP: 0x500, Frames: waiting("B")}},
			"leaf Load A box run inlined Save B box"},
		{[]AwaitingAt{{SP: 0x400, Frames: waiting("A")}}, "leaf Load box run A inlined Save box"},
		{[]AwaitingAt{{SP: 0x300}}, "leaf Load box run inlined Save box"},
		{[]AwaitingAt{{SP: 0x900, Frames: waiting("A")}}, "leaf Load box run inlined Save box"},
	} {
		var got []string
		for _, f := range insertAwaiting(frames, tt.list) {
			got = append(got, f.Short)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%+v:\n%s\nwant\n%s", tt.list, s, tt.want)
		}
	}
}

// TestReported: a state machine is on a stack once, its box in each of the frames that have called
// the MoveNext.
func TestReported(t *testing.T) {
	moves, box := &AsyncCode{table: 0x100, known: true}, &AsyncCode{runner: true, box: true, known: true}
	var a Asyncs
	a.Begin()
	for i, f := range []struct {
		code     *AsyncCode
		argument arch.Addr
		is       bool
	}{
		{nil, 0x10, false}, {moves, 0x20, true}, {box, 0x18, true}, {box, 0x18, true}, {moves, 0x20, true},
		{moves, 0, true}, {moves, 0x30, true}, {&AsyncCode{table: 0x100}, 0x40, false},
	} {
		if is := a.Reported(f.code, i, f.argument); is != f.is {
			t.Errorf("frame %d: %v", i, is)
		}
	}
	want := []AsyncSite{
		{Below: 2, Argument: 0x20, Table: 0x100, resumed: true}, {Below: 2, Argument: 0x18, of: 0x100},
		{Below: 2, Argument: 0x18, of: 0x100},
		{Below: 7, Argument: 0x30, Table: 0x100},
	}
	if !slices.Equal(a.Sites, want) {
		t.Errorf("%+v", a.Sites)
	}
}

// TestCopiedWords: only the copied words can be read.
func TestCopiedWords(t *testing.T) {
	m := copiedWords{0x10: 0x0807060504030201, 0x18: 0x100f0e0d0c0b0a09, 0x28: 1}
	b := make([]byte, 10)
	if err := m.ReadMemory(b, 0x13); err != nil || !slices.Equal(b, []byte{4, 5, 6, 7, 8, 9, 10, 11, 12, 13}) {
		t.Errorf("%v, %v", b, err)
	}
	for _, at := range []arch.Addr{0x8, 0xf, 0x17, 0x20, ^arch.Addr(3)} {
		if err := m.ReadMemory(b, at); err == nil {
			t.Errorf("%v can be read", at)
		}
	}
}
