package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/clr/web"
)

// callsOf makes calls: "path", "path@socket" or "path@socket/stream", and "-1" behind that after a walk that missed it.
func callsOf(t *testing.T, texts string) (out []*sent) {
	t.Helper()
	for text := range strings.FieldsSeq(texts) {
		path, at, ok := strings.Cut(text, "@")
		c := &sent{Message: web.Message{Path: path}}
		if ok {
			c.use = &web.Use{HTTP2: strings.Contains(at, "/")}
			if n, _ := fmt.Sscanf(at, "%d/%d", &c.use.Socket, &c.use.Stream); n == 0 {
				t.Fatal(text)
			}
		}
		out = append(out, c)
	}
	return out
}

func callTexts(calls []*sent) string {
	var out []string
	for _, c := range calls {
		text := c.Path
		if p, ok := lineOf(c); ok {
			if text += fmt.Sprintf("@%d", p.socket); p.stream > 0 {
				text += fmt.Sprintf("/%d", p.stream)
			}
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func walkWith(calls ...*sent) *requestWalk {
	return &requestWalk{room: maxRequestBytes, taskWalk: &taskWalk{}, listed: calls}
}

// TestCallsTakenOver: what a walk has missed is taken over from an earlier one, and no call is listed twice.
func TestCallsTakenOver(t *testing.T) {
	for _, tt := range []struct{ now, before, want string }{
		{"/a@5", "/a@5 /b@6", "/a@5 /b@6"},
		{"/b@5", "/a@5", "/b@5"},                                   // HTTP/1: one after the other
		{"/a@5/1", "/a@5/3 /b@5/5", "/a@5/1 /b@5/5"},               // the only one with this path: its place was misread
		{"/a@5/1 /a@5/3", "/a@5/3 /a@5/5", "/a@5/1 /a@5/3 /a@5/5"}, // equal ones are told by their streams
		{"/a", "/a@5 /b@6", "/a /b@6"},
		{"/a@5", "/a /b", "/a@5 /b"},
		{"/a@5 /a", "/a /a /a", "/a /a /a@5"}, // or by their number
		{"/a@5/0", "/a@5/3", "/a"},            // the stream is not known
		{"", "/a /a", "/a /a"},
	} {
		w := walkWith(callsOf(t, tt.now)...)
		if w.takeOver(callsOf(t, tt.before)); callTexts(w.listed) != tt.want {
			t.Errorf("%q after %q: %q, want %q", tt.now, tt.before, callTexts(w.listed), tt.want)
		}
	}

	w := walkWith(callsOf(t, "/a@5")...)
	for missed := range mostMissed + 1 {
		next := walkWith()
		if next.inheritCalls(w); (len(next.listed) > 0) != (missed < mostMissed) {
			t.Errorf("after %d walks that missed it: %q", missed, callTexts(next.listed))
		}
		w = next
	}
	all := walkWith()
	all.whole, all.still = true, true
	if all.inheritCalls(walkWith(callsOf(t, "/a@5")...)); len(all.listed) > 0 {
		t.Errorf("a walk that missed nothing has %q", callTexts(all.listed))
	}
	twice := walkWith()
	twice.strays = callsOf(t, "/a /a /b@5 /b@5")
	if twice.inheritCalls(nil); callTexts(twice.listed) != "/a /b@5" {
		t.Errorf("strays: %q", callTexts(twice.listed))
	}
	torn := walkWith(callsOf(t, "/a@5 /a@6 /b@7 /b@8")...)
	for i, c := range torn.listed {
		c.since = time.Unix(int64(max(i, 1)), 0) // both of /a at the same time
	}
	if torn.inheritCalls(nil); callTexts(torn.listed) != "/a@5 /b@7 /b@8" {
		t.Errorf("a wrong place: %q", callTexts(torn.listed))
	}
}
