package session

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestInlinedWait: if the primitive has no frame any more, the thread's wait is still the wait for
// the primitive, whether or not inlined methods are wanted.
func TestInlinedWait(t *testing.T) {
	a := testenv.Start(t, "hotwait", testenv.Options{})
	hasFrame := true
	for _, inlined := range []bool{true, false} {
		p, err := Open(context.Background(), a.PID, Options{Inlined: inlined})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		// The thread spins first, and may sleep meanwhile.
		testenv.UntilSeen(t, func() string {
			snap, err := p.Snapshot(context.Background(), SnapshotOptions{
				Filter: func(t *Thread) bool { return t.Name == "hot" },
			})
			if err != nil || len(snap.Threads) != 1 {
				t.Fatalf("%+v, %v", snap, err)
			}
			th := &snap.Threads[0]
			for i := range th.Frames {
				f := &th.Frames[i]
				hasFrame = hasFrame &&
					!(f.Inlined && strings.HasPrefix(f.Method, "System.Threading.ManualResetEventSlim.Wait"))
			}
			if w := th.Wait; w == nil || w.Kind != snapshot.EventWait || w.Object == 0 || !w.Certain {
				return fmt.Sprintf("a wait for an event (inlined methods wanted: %v), but %+v of %+v", inlined, w,
					th.Frames)
			}
			return ""
		})
	}
	t.Logf("the primitive has a frame: %v", hasFrame)
}
