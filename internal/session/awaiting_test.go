package session

import (
	"strings"
	"testing"

	"clrsnap/snapshot"
)

func TestInsertAwaiting(t *testing.T) {
	frames := []snapshot.Frame{
		{Short: "leaf", SP: 0x100}, {Short: "Load", SP: 0x200}, {Short: "box", SP: 0x300}, {Short: "run", SP: 0x340},
		{Short: "inlined", SP: 0x400}, {Short: "Save", SP: 0x400}, {Short: "box", SP: 0x500},
	}
	waiting := func(names ...string) (out []snapshot.Frame) {
		for _, n := range names {
			out = append(out, snapshot.Frame{Kind: snapshot.Async, Short: n})
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
