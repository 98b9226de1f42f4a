package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// witnessed is an exception object in ClrMD's reading.
type witnessed struct {
	Type    string
	Message string
	HResult int32
	Frames  []string
}

// TestExceptionsWitness compares exceptions in flight, with the frames that .NET does not print, with ClrMD's reading
// of the same objects.
func TestExceptionsWitness(t *testing.T) {
	var installed []string
	for _, b := range testenv.InstalledRuntimes() {
		installed = append(installed, b.Runtime)
	}
	testenv.EachOf(t, installed, testExceptionsWitness)
}

func testExceptionsWitness(t *testing.T, runtime string) {
	// Each way has a message of its own. ClrMD knows objects, but not their handlers.
	ways := []string{"catch", "filter", "again", "dispatch", "async", "aggregate", "generic", "iterator", "lambda",
		"dynamic", "collectible", "null", "divide", "constructor", "argument", "reflection", "remote"}
	a := testenv.Start(t, "failing",
		testenv.Options{Runtime: runtime, Args: []string{"--hold", strings.Join(ways, ",")}})
	p := livetest.Open(t, a, clrsnap.Options{})
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	said := askClrMD(t, a)
	exceptions, frames := 0, 0
	for _, way := range ways {
		for e := heldException(t, snap, way); e != nil; e = e.Inner {
			message, _, _ := strings.Cut(e.Message, " (Parameter '")
			found := said[e.Type+": "+message]
			if len(found) != 1 {
				t.Errorf("%s: ClrMD knows %d exceptions %s: %s", way, len(found), e.Type, message)
				continue
			}
			// Since .NET 9, traces with collectible methods have a form that ClrMD 4.1 does not know.
			if exceptions++; way != "dynamic" && way != "collectible" || len(found[0].Frames) > 0 {
				frames += sameAsWitness(t, way, e, found[0])
			}
		}
	}
	t.Logf("%d frames of %d exceptions are the same", frames, exceptions)
	if exceptions < len(ways) || frames < 120 {
		t.Errorf("%d frames of %d exceptions compared", frames, exceptions)
	}
	livetest.EndsWell(t, a)
}

// askClrMD returns the exceptions on the heap of a program, by type and message.
func askClrMD(t *testing.T, a *testenv.App) map[string][]witnessed {
	t.Helper()
	out := testenv.AskClrMD(t, "exceptions", a)
	said := map[string][]witnessed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var w witnessed
		if err := d.Decode(&w); errors.Is(err, io.EOF) {
			return said
		} else if err != nil {
			t.Fatal(err)
		}
		key := w.Type + ": " + w.Message
		said[key] = append(said[key], w)
	}
}

// sameAsWitness compares an exception with ClrMD's reading, and returns the number of frames.
func sameAsWitness(t *testing.T, way string, e *snapshot.ExceptionInfo, want witnessed) int {
	t.Helper()
	if e.HResult != want.HResult || len(e.Frames) != len(want.Frames) {
		t.Errorf("%s: HRESULT %#x and %d frames, ClrMD: %#x and %d: %q",
			way, e.HResult, len(e.Frames), want.HResult, len(want.Frames), want.Frames)
		return 0
	}
	for i := range e.Frames {
		if got, w := withoutArguments(e.Frames[i].Method), withoutArguments(want.Frames[i]); got != w &&
			!strings.HasSuffix(w, "."+got) {
			t.Errorf("%s, frame %d: %s, ClrMD: %s", way, i, e.Frames[i].Method, want.Frames[i])
		}
	}
	return len(e.Frames)
}

// typeArguments matches the type arguments after the name of a generic type or method. Names from the compiler begin
// with a bracket of this kind.
var typeArguments = regexp.MustCompile("(`\\d+|(\\w)<[\\w.,+ <>]*>|\\[\\[.*\\]\\])(\\.|$)")

// withoutArguments removes arity and arguments of generic types and methods from a name.
func withoutArguments(method string) string { return typeArguments.ReplaceAllString(method, "$2$3") }
