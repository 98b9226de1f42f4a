package session

import (
	"strings"
	"testing"

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

func TestShortLabel(t *testing.T) {
	for name, want := range map[string]string{
		"System.Threading.Tasks.Task.WhenAll": "Task.WhenAll", "Task.Wait": "Task.Wait", "Wait": "Wait", "": "",
	} {
		if got := shortLabel(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestCommonTarget(t *testing.T) {
	const to = "recv tcp 10.1.2.3:41234 → 10.1.2.9:5432 established"
	for _, tt := range []struct{ a, b, want string }{
		{to, to, to},
		{to, "recv tcp 10.1.2.3:41235 → 10.1.2.9:5432 established", "recv tcp → 10.1.2.9:5432 established"},
		{"recv tcp → 10.1.2.9:5432 established", to, "recv tcp → 10.1.2.9:5432 established"},
		{"recv tcp 10.1.2.3:80 → 10.9.9.9:1 established", "recv tcp 10.1.2.3:80 → 10.9.9.9:2 established",
			"recv tcp 10.1.2.3:80"},
		{to, "recv", "recv"}, {to, "send tcp", ""}, {"", "", ""},
	} {
		if got := commonTarget(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: %q, want %q", tt.a, tt.b, got, tt.want)
		}
	}
}
