package naming

import (
	"slices"
	"testing"

	"clrsnap/internal/clr/name"
)

// TestAwaitCandidates: the awaits at which a suspended method can be. The method has three: Load, Save and Load
// again.
func TestAwaitCandidates(t *testing.T) {
	awaits := []name.Await{
		{IL: 10, Calls: []string{"Load"}}, {IL: 20, Calls: []string{"get_Path", "Save"}},
		{IL: 30, Calls: []string{"Load"}},
	}
	for _, tt := range []struct {
		what    string
		at      int
		all     bool
		state   int32
		pointed []bool
		inner   string
		want    []int
	}{
		{"a point of its own", 1, true, 1, []bool{true, true, true}, "Save", []int{1}},
		{"no point, but the number", -1, true, 2, []bool{true, true, false}, "", []int{2}},
		{"the number contradicts the point", 0, true, 1, []bool{true, true, true}, "", []int{0, 1}},
		{"another one may be merged with it", 0, false, 0, []bool{true, false, true}, "", []int{0, 1}},
		{"another one is merged with it", 0, false, 0, []bool{true, false, true}, "Save", []int{1}},
		{"an equal one is merged with it", 0, false, 0, []bool{true, true, false}, "Load", []int{0, 2}},
		{"all have points", 2, false, 5, []bool{true, true, true}, "Other", []int{2}},
		{"nothing is known", -1, false, 7, []bool{false, false, false}, "", []int{0, 1, 2}},
		{"but the method that is awaited", -1, false, 7, []bool{false, false, false}, "Save", []int{1}},
		{"a number that is none", -1, true, 3, []bool{true, true, true}, "", []int{0, 1, 2}},
	} {
		s := resumedAt{awaits: awaits, pointed: tt.pointed, all: tt.all, at: tt.at, state: tt.state}
		if got := s.candidates(tt.inner); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, got, tt.want)
		}
	}
	for il, want := range map[uint32]int{0: 0, 10: 0, 11: 1, 30: 2, 31: -1} {
		if got := awaitOf(awaits, il); got != want {
			t.Errorf("IL %d: %d, want %d", il, got, want)
		}
	}
}

func TestMachineMethod(t *testing.T) {
	for full, want := range map[string]string{
		"Shop.Store+<Load>d__3": "Load", "Store`1+<Load>d__0`2": "Load", "Store+<Shop-IStore-Load>d__1": "Load",
		"Store+<>c+<<Load>b__4_0>d": "<Load>b__4_0", "Store+<<Load>g__Go|3_0>d": "<Load>g__Go|3_0",
		"Store+Load@12": "", "Store": "", "": "",
	} {
		if got := machineMethod(full); got != want {
			t.Errorf("%s: %q, want %q", full, got, want)
		}
	}
}
