package matrix

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestLines compares the IL offset and the source line of every caller with the runtime's own StackTrace.
func TestLines(t *testing.T) { testenv.EachRuntime(t, testLines) }

func testLines(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime})
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	compared, lines, approximate := 0, 0, map[string]bool{}
	stacks := slices.Collect(maps.Values(a.Stacks))
	for _, th := range snap.Threads {
		of := slices.IndexFunc(stacks, func(s testenv.Stack) bool { return s.TID == th.OSThreadID })
		if of < 0 {
			continue
		}
		want := stacks[of]
		for _, w := range want.Frames[1:] { // the first frame has moved on
			i := slices.IndexFunc(th.Frames, func(f snapshot.Frame) bool {
				return f.Offset == uint64(w.NativeOffset) && f.Method == w.Exact()
			})
			// StackTrace has no offsets in dynamic methods. Code that calls native code has no IL.
			if i < 0 || w.Kind == testenv.Dynamic || w.Kind == testenv.PInvoke {
				continue
			}
			lines += checkLine(t, want.Scenario, &th.Frames[i], w)
			il, isExact, err := livetest.IL(p, th.Frames[i].IP)
			if err != nil {
				t.Errorf("%s: %s+%#x: %v", want.Scenario, w.Method, w.NativeOffset, err)
				continue
			}
			if compared++; isExact && int(il) == w.ILOffset {
				continue
			}
			// The call of a finally body, for example, has no IL offset: StackTrace then says 0.
			approximate[w.Method] = true
			if isExact || w.ILOffset != 0 {
				t.Errorf("%s: %s+%#x (%s): IL offset %d, exact %v, want %d",
					want.Scenario, w.Method, w.NativeOffset, th.Frames[i].Tier, il, isExact, w.ILOffset)
			}
		}
	}
	t.Logf("%d frames, %d with a line; without an exact IL offset: %v", compared, lines, approximate)
	if compared < 500 || lines < 200 || len(approximate) > 3 {
		t.Errorf("%d frames compared, %d with a line; without an exact IL offset: %v", compared, lines, approximate)
	}
}

// checkLine returns 1 if a frame has a line.
func checkLine(t *testing.T, scenario string, got *snapshot.Frame, want testenv.Frame) int {
	t.Helper()
	if got.Line == nil {
		if want.Line != 0 {
			t.Errorf("%s: %s+%#x has no line, want %s:%d", scenario, got.Method, got.Offset, want.File, want.Line)
		}
		return 0
	}
	if want.Line == 0 { // on .NET 8 StackTrace has no line at all in a stack with a dynamic method
		return 0
	}
	if l := got.Line; !l.Approximate && (l.Line != want.Line || l.File != want.File) && !handles(t, l) {
		t.Errorf("%s: %s+%#x (%s): line %s:%d, want %s:%d",
			scenario, got.Method, got.Offset, got.Tier, l.File, l.Line, want.File, want.Line)
	}
	return 1
}

// handles reports whether a line has a catch or finally body. In StackTrace the method stands at the place from which
// the method entered the body. (internal/proof/lines proves the lines of handlers.)
func handles(t *testing.T, l *snapshot.SourceLine) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", l.File))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if l.Line > len(lines) {
		t.Fatalf("%s has no line %d", l.File, l.Line)
	}
	line := strings.TrimSpace(lines[l.Line-1])
	return strings.HasPrefix(line, "catch (") || strings.HasPrefix(line, "finally {")
}
