package why

import (
	"slices"
	"testing"

	"clrsnap/internal/remote"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestSettle: consequences are told with their root, and the gravest comes first.
func TestSettle(t *testing.T) {
	of := func(c profile.Cause, certainty profile.Certainty, methods ...string) profile.Verdict {
		return profile.Verdict{Cause: c, Certainty: certainty, Text: string(c), Evidence: []profile.Evidence{{
			Frames: stack(methods...), Threads: []snapshot.ThreadRef{{OSThreadID: 1}},
		}}}
	}
	elsewhere := func(v profile.Verdict) profile.Verdict {
		v.Evidence[0].Threads[0].OSThreadID = 2
		return v
	}
	itself := elsewhere(of(profile.CauseRemoteCall, profile.Possible))
	itself.Text = "127.0.0.1:80" + remote.OfItself + " may not answer"
	other := elsewhere(of(profile.CauseRemoteCall, profile.Likely))
	through := of(profile.CauseLockContention, profile.Likely)
	through.Evidence[0].Threads = append(through.Evidence[0].Threads, snapshot.ThreadRef{OSThreadID: 2})
	causes := func(list []profile.Verdict) (out []profile.Cause) {
		for _, v := range list {
			out = append(out, v.Cause)
		}
		return out
	}
	const likely, possible = profile.Likely, profile.Possible
	for _, tt := range []struct {
		name string
		all  []profile.Verdict
		want []profile.Cause
	}{
		{"by gravity", []profile.Verdict{of(profile.CauseCPU, likely), of(profile.CauseDeadlock, likely)},
			[]profile.Cause{profile.CauseDeadlock, profile.CauseCPU}},
		{"possible last", []profile.Verdict{of(profile.CauseDeadlock, possible), of(profile.CauseCPU, likely)},
			[]profile.Cause{profile.CauseCPU, profile.CauseDeadlock}},
		{"a starved pool because of a deadlock",
			[]profile.Verdict{of(profile.CausePoolStarvation, likely), of(profile.CauseDeadlock, likely)},
			[]profile.Cause{profile.CauseDeadlock}},
		{"a starved pool beside a deadlock",
			[]profile.Verdict{elsewhere(of(profile.CausePoolStarvation, likely)), of(profile.CauseDeadlock, likely)},
			[]profile.Cause{profile.CauseDeadlock, profile.CausePoolStarvation}},
		{"a starved pool because of a lock because of a deadlock",
			[]profile.Verdict{elsewhere(of(profile.CausePoolStarvation, likely)), through,
				of(profile.CauseDeadlock, likely)},
			[]profile.Cause{profile.CauseDeadlock}},
		{"of what is only possible nothing follows",
			[]profile.Verdict{of(profile.CausePoolStarvation, likely), of(profile.CauseDeadlock, possible)},
			[]profile.Cause{profile.CausePoolStarvation, profile.CauseDeadlock}},
		{"a CPU for garbage",
			[]profile.Verdict{of(profile.CauseCPU, likely, "Shop.Load"), of(profile.CauseGC, likely, "Shop.Load")},
			[]profile.Cause{profile.CauseGC}},
		{"a CPU for something else",
			[]profile.Verdict{of(profile.CauseCPU, likely, "Shop.Spin"), of(profile.CauseGC, likely, "Shop.Load")},
			[]profile.Cause{profile.CauseCPU, profile.CauseGC}},
		{"no answer from the process itself, whose threads are blocked",
			[]profile.Verdict{itself, of(profile.CauseBlockedIO, likely)}, []profile.Cause{profile.CauseBlockedIO}},
		{"no answer from the process itself, whose threads wait for a lock",
			[]profile.Verdict{itself, elsewhere(of(profile.CauseLockContention, likely))},
			[]profile.Cause{profile.CauseLockContention}},
		{"no answer from another process", []profile.Verdict{other, of(profile.CauseBlockedIO, likely)},
			[]profile.Cause{profile.CauseBlockedIO, profile.CauseRemoteCall}},
		{"stopped", []profile.Verdict{of(profile.CauseLockContention, likely), of(profile.CauseStopped, likely)},
			[]profile.Cause{profile.CauseStopped}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := causes(settle(tt.all))
			if len(got) != len(tt.want) {
				t.Fatal(got)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Error(got)
				}
			}
		})
	}
	out := settle([]profile.Verdict{of(profile.CausePoolStarvation, likely), of(profile.CauseDeadlock, likely)})
	if n := len(out[0].Evidence); n != 3 {
		t.Errorf("%d pieces of evidence", n)
	}
	out = settle([]profile.Verdict{elsewhere(of(profile.CausePoolStarvation, likely)), through,
		of(profile.CauseDeadlock, likely)})
	if n := len(out[0].Evidence); n != 5 {
		t.Errorf("%d pieces of evidence at the root", n)
	}
}

// TestNothing: an unknown program is not accused of anything.
func TestNothing(t *testing.T) {
	for _, e := range []*evidence{{}, same(1), same(4), same(4, running(1, "Shop.Orders.Add"))} {
		if r := e.report(); len(r.Verdicts) > 0 {
			t.Errorf("%v", r.Verdicts)
		}
	}
}

// TestConsequence: a stack that is shown already is not shown once more with a consequence.
func TestConsequence(t *testing.T) {
	of := func(c profile.Cause, methods ...string) profile.Verdict {
		v := profile.Verdict{Cause: c, Certainty: profile.Likely, Text: string(c)}
		for _, m := range methods {
			v.Evidence = append(v.Evidence, profile.Evidence{
				Text: m, Frames: stack(m), Threads: []snapshot.ThreadRef{{OSThreadID: 1}},
			})
		}
		return v
	}
	got := settle([]profile.Verdict{
		of(profile.CauseDeadlock, "Shop.Book"), of(profile.CauseLockContention, "Shop.Book", "Shop.Report"),
	})
	var texts []string
	for _, e := range got[0].Evidence {
		texts = append(texts, e.Text)
	}
	want := []string{"Shop.Book", "As a consequence: " + string(profile.CauseLockContention), "Shop.Report"}
	if len(got) != 1 || !slices.Equal(texts, want) {
		t.Errorf("%d verdicts, %q", len(got), texts)
	}
}
