package report

import (
	"hash/maphash"
	"testing"

	"clrsnap/snapshot"
)

// TestStackKeys: stacks are equal if all frames are, also the caller of the folded frames.
func TestStackKeys(t *testing.T) {
	k := stackKeys{seed: maphash.MakeSeed(), folds: func([]snapshot.Frame) []snapshot.Fold {
		return []snapshot.Fold{{First: 1, Frames: 2, Parts: "2 frames"}}
	}}
	key := func(names ...string) string {
		var th snapshot.Thread
		for _, n := range names {
			th.Frames = append(th.Frames, snapshot.Frame{Kind: snapshot.Managed, Display: n})
		}
		return string(k.of(&th, nil))
	}
	one := key("Leaf", "Plumbing", "Plumbing", "Caller", "Main")
	if other := key("Leaf", "Other", "Plumbing", "Caller", "Main"); other != one {
		t.Error("what is folded away counts")
	}
	for _, different := range [][]string{
		{"Other", "Plumbing", "Plumbing", "Caller", "Main"}, {"Leaf", "Plumbing", "Plumbing", "Other", "Main"},
		{"Leaf", "Plumbing", "Plumbing", "Caller", "Other"}, {"Leaf", "Plumbing", "Plumbing", "Caller"},
	} {
		if key(different...) == one {
			t.Errorf("%q is taken for another stack", different)
		}
	}
}

// TestQuoted: a name with quotes and lines of its own stays one name.
func TestQuoted(t *testing.T) {
	const name = `a "b" \ c`
	if got := quoted(name); got != `"a \"b\" \ c"` {
		t.Error(got)
	}
	if got := dotString(name + "\nd"); got != `"a \"b\" \\ c\nd"` {
		t.Error(got)
	}
}
