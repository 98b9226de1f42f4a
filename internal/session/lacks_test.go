package session

import (
	"testing"

	"clrsnap/snapshot"
)

// TestConsequence: a text names the consequences of pages that a dump lacks, whatever needed the pages.
func TestConsequence(t *testing.T) {
	s := &snapshot.Snapshot{Threads: []snapshot.Thread{
		{OSThreadID: 11, Complete: true}, {OSThreadID: 12}, {OSThreadID: 13, Complete: true}, {OSThreadID: 14},
	}}
	for _, tt := range []struct {
		l    lacks
		want string
	}{
		{lacks{}, "nothing that is shown needs them"},
		{lacks{stacks: map[int]bool{99: true}}, "nothing that is shown needs them"}, // a thread outside the snapshot
		{lacks{stacks: map[int]bool{12: true}}, "1 stack is not complete (12)"},
		{lacks{stacks: map[int]bool{12: true, 14: true, 13: true}, names: 1}, "2 stacks are not complete (12, 14); " +
			"names, parameters or tiers of methods may be missing, first in thread 13; " +
			"the names of 1 thread may be the kernel's, or missing"},
	} {
		if got := tt.l.consequence(s); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.l, got, tt.want)
		}
	}
}
