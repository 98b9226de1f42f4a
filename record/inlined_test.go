package record_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// TestRecordInlined: recorded stacks have the inlined methods of a snapshot, with the same lines, in
// the file as well. A selection can leave out inlined methods.
func TestRecordInlined(t *testing.T) {
	a := testenv.Start(t, "inlined", testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{Inlined: true, Lines: true})
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	text := func(f *profile.Function, inlined bool, line *snapshot.SourceLine) string {
		if f.Kind != snapshot.Managed {
			return ""
		}
		mark := ""
		if inlined {
			mark = " (inlined)"
		}
		return f.Display + mark + lineText(line)
	}
	want, inlined := map[int][]string{}, 0
	for i := range snap.Threads {
		th := &snap.Threads[i]
		if !slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool {
			return strings.HasPrefix(f.Method, "Inlined.Cases.")
		}) {
			continue
		}
		for k := range th.Frames {
			f := &th.Frames[k]
			if f.Inlined {
				inlined++
			}
			want[th.OSThreadID] = append(want[th.OSThreadID],
				text(&profile.Function{Kind: f.Kind, Display: f.Display}, f.Inlined, f.Line))
		}
	}
	if len(want) < 10 || inlined < 10 {
		t.Fatalf("%d threads with %d inlined methods", len(want), inlined)
	}
	r := written(t, livetest.Recorded(t, p, record.Options{
		Modes: []profile.Mode{profile.Wall}, MaxCPU: 2, Duration: 500 * time.Millisecond,
	}))
	check := func(r *profile.Recording, with bool) {
		t.Helper()
		met := map[int]bool{}
		for i := range r.Samples {
			x := &r.Samples[i]
			tid := r.Threads[x.Thread].OSThreadID
			stack, ok := want[tid]
			if !ok || met[tid] {
				continue
			}
			met[tid] = true
			if !with {
				stack = slices.DeleteFunc(slices.Clone(stack), func(s string) bool {
					return strings.Contains(s, " (inlined)")
				})
			}
			var got []string
			for l := range r.Stack(x.Node) {
				got = append(got, text(&r.Functions[l.Function], l.Inlined, r.SourceLine(l)))
			}
			if !slices.Equal(got, stack) {
				t.Errorf("%s:\n\t%s\nwant\n\t%s", r.Threads[x.Thread].Name, strings.Join(got, "\n\t"),
					strings.Join(stack, "\n\t"))
			}
		}
		if len(met) != len(want) {
			t.Errorf("%d of %d threads were recorded", len(met), len(want))
		}
	}
	check(r, true)
	check(r.Select(profile.Selection{Native: true, NoInlined: true}), false)
	livetest.EndsWell(t, a)
}
