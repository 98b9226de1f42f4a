package requests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// callsOf makes calls from texts: "path", then "@socket" or "@socket/stream", "+s" for the start
// time, and "!n" for the moment of the reading. Everything after the path may be unknown.
func callsOf(t *testing.T, texts string) (out []*sent) {
	t.Helper()
	for i, text := range strings.Fields(texts) {
		path, epoch, ok := strings.Cut(text, "!")
		path, since, aged := strings.Cut(path, "+")
		path, at, has := strings.Cut(path, "@")
		c := &sent{Message: web.Message{Path: path}, object: arch.Addr(i)}
		var err error
		if ok {
			_, err = fmt.Sscan(epoch, &c.epoch)
		}
		if aged {
			c.since = time.Unix(int64(since[0]-'0'), 0)
		}
		if has {
			c.use = &web.Use{HTTP2: strings.Contains(at, "/")}
			if n, _ := fmt.Sscanf(at, "%d/%d", &c.use.Socket, &c.use.Stream); n == 0 {
				t.Fatal(text)
			}
		}
		if err != nil {
			t.Fatal(text)
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
		if !c.since.IsZero() {
			text += fmt.Sprintf("+%d", c.since.Unix())
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func walkWith(calls ...*sent) *walk {
	return &walk{
		room: maxRequestBytes, Walk: &tasks.Walk{Begin: time.Unix(100, 0)},
		makes: map[*snapshot.TaskChain]*sent{},
		made:  calls,
	}
}

// TestCallsTakenOver: calls that a walk has missed are taken over from an earlier walk, and no call
// is listed twice.
func TestCallsTakenOver(t *testing.T) {
	for _, tt := range []struct{ now, before, want string }{
		{"/a@5", "/a@5 /b@6", "/a@5 /b@6"},
		{"/b@5", "/a@5", "/b@5"},                                   // HTTP/1: one after the other
		{"/a@5/1 /a@5/3", "/a@5/3 /a@5/5", "/a@5/1 /a@5/3 /a@5/5"}, // streams tell equal calls apart
		{"/a@5+1", "/a+1 /a+2", "/a+2 /a@5+1"},                     // the call has got a line since
		{"/a@5", "/a", "/a@5"},
		{"/a@5/0", "/a@5/3", "/a /a@5/3"}, // the stream is unknown, and so the calls may be different
		{"/a@5/0+1", "/a@5/3+1", "/a+1"},
		{"", "/a+1 /a+2", "/a+1 /a+2"},
	} {
		before, now := walkWith(callsOf(t, tt.before)...), walkWith(callsOf(t, tt.now)...)
		before.list()
		now.list()
		if now.inheritCalls(before); callTexts(now.listed) != tt.want {
			t.Errorf("%q after %q: %q, want %q", tt.now, tt.before, callTexts(now.listed), tt.want)
		}
	}

	for _, tt := range []struct {
		call string
		most int // walks that may miss the call
	}{{"/a@5+1", mostMissed}, {"/a@5", 1}, {"/a@5+9", 0}} {
		w := walkWith(callsOf(t, tt.call)...)
		w.list()
		if c := w.listed[0]; c.since.Unix() == 9 {
			c.since = c.seen // the call has just begun
		}
		for missed := range tt.most + 1 {
			next := walkWith()
			if next.inheritCalls(w); (len(next.listed) > 0) != (missed < tt.most) {
				t.Errorf("%s: after %d walks that missed it: %q", tt.call, missed+1, callTexts(next.listed))
			}
			w = next
		}
	}
	all := walkWith()
	all.whole, all.still = true, true
	if all.inheritCalls(walkWith(callsOf(t, "/a@5")...)); len(all.listed) > 0 {
		t.Errorf("a walk that missed nothing has %q", callTexts(all.listed))
	}
}

// TestCallsReadTwice: for readings of different moments, addresses do not tell whether the call is
// the same.
func TestCallsReadTwice(t *testing.T) {
	for _, tt := range []struct {
		read     string
		want     string
		unproven int
	}{
		{"/a@5 /a@5", "/a@5", 0},
		{"/a@5 /b@5", "/b@5", 0},                // the first call has ended
		{"/a+1 /a+1", "/a+1", 0},                // at different moments
		{"/a+1!1 /a+1!1", "/a+1 /a+1", 0},       // at one moment
		{"/a+1 /a@5+1", "/a@5+1", 0},            // the call has got a line meanwhile
		{"/a@5!1 /a!1 /a!2 /a!2", "/a /a@5", 2}, // two at each moment; there may have been others
	} {
		w := walkWith(callsOf(t, tt.read)...)
		if w.list(); callTexts(w.listed) != tt.want || w.Unproven != tt.unproven {
			t.Errorf("%q: %q, %d unproven, want %q, %d", tt.read, callTexts(w.listed), w.Unproven, tt.want, tt.unproven)
		}
	}
}
