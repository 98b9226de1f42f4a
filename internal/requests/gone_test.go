package requests

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/session"
	"clrsnap/internal/testenv"
)

// leaver is a client of one request, with a connection of its own.
type leaver struct {
	id       string
	answered bool               // the application begins an answer
	cancel   context.CancelFunc // hangs up: closes the connection of HTTP/1, resets the stream of HTTP/2
	conn     chan net.Conn
	begun    chan struct{} // closed once the beginning of the answer is there
}

// leave begins a request. The client reads the first bytes of the answer.
func leave(t *testing.T, url, way, id string, two bool) *leaver {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	l := &leaver{
		id: id, answered: way != "left", cancel: cancel, conn: make(chan net.Conn, 1), begun: make(chan struct{}),
	}
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, at string) (
		net.Conn, error,
	) {
		c, err := new(net.Dialer).DialContext(ctx, network, at)
		if err == nil {
			l.conn <- c
		}
		return c, err
	}}
	tr.Protocols.SetHTTP1(!two)
	tr.Protocols.SetUnencryptedHTTP2(two)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/"+way+"/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		r, err := (&http.Client{Transport: tr}).Do(q)
		if err != nil {
			return // the client has hung up, or the program has ended
		}
		defer r.Body.Close()
		if _, err := io.ReadFull(r.Body, make([]byte, 4)); err == nil {
			close(l.begun)
		}
		io.Copy(io.Discard, r.Body)
	}()
	return l
}

// TestGone: a request is for a client that has gone if the client has hung up, or has closed the connection. The
// program agrees: RequestAborted is cancelled. A client that has its answer and then closes the connection, while the
// application goes on, does not count.
func TestGone(t *testing.T) {
	testenv.EachAspNet(t, func(t *testing.T, runtime string) {
		for i, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(protocol, func(t *testing.T) {
				a := testenv.Start(t, "requests", testenv.Options{Runtime: runtime})
				testGone(t, a, a.Ask("urls")[i], protocol)
			})
		}
	})
}

func testGone(t *testing.T, a *testenv.App, url, protocol string) {
	two := protocol == "HTTP/2"
	const stays, hangsUp, closes = "stays", "hangs-up", "closes"
	all, want := map[string]*leaver{}, map[string]bool{} // whether the client of a request has gone, by the id
	for _, way := range []string{"left", "left-stream", "answered", "answered-chunked"} {
		for _, does := range []string{stays, hangsUp, closes} {
			if strings.HasPrefix(way, "answered") && does == hangsUp {
				continue // there is nothing left to hang up
			}
			l := leave(t, url, way, way+"-"+does, two)
			all[l.id], want[l.id] = l, does != stays && strings.HasPrefix(way, "left")
		}
	}
	testenv.UntilSeen(t, func() string {
		if begun := a.Ask("begun"); len(begun) != len(all) {
			return fmt.Sprintf("%d requests that have begun: %q", len(all), begun)
		}
		return ""
	})
	testenv.UntilSeen(t, func() string {
		for id, l := range all {
			select {
			case <-l.begun:
			default:
				if l.answered {
					return "the beginning of the answer to " + id
				}
			}
		}
		return ""
	})
	var closed, gone []string
	for id, l := range all {
		switch {
		case strings.HasSuffix(id, closes):
			(<-l.conn).Close()
			closed = append(closed, id)
		case strings.HasSuffix(id, hangsUp):
			l.cancel()
			if !two {
				closed = append(closed, id)
			}
		}
		if want[id] {
			gone = append(gone, id)
		}
	}
	testenv.UntilSeen(t, func() string {
		for question, ids := range map[string][]string{"gone": gone, "closed": closed} {
			slices.Sort(ids)
			if got := a.Ask(question); !slices.Equal(slices.Sorted(slices.Values(got)), ids) {
				return fmt.Sprintf("%s %q, but %q", question, ids, got)
			}
		}
		return ""
	})
	p, err := session.Open(context.Background(), a.PID, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	testenv.UntilSeen(t, func() string { // a request may be missed where the collector moves objects
		r, err := Find(context.Background(), p, session.WalkOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for i := range r.Requests {
			for _, q := range r.Requests[i].Requests {
				id := q.Path[strings.LastIndex(q.Path, "/")+1:]
				if got[id] = q.Aborted; q.Aborted != want[id] || q.Protocol != protocol {
					t.Errorf("%s: %s, gone: %v", q.Path, q.Protocol, q.Aborted)
				}
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Sprintf("gone: %v, but %v", want, got)
		}
		return ""
	})
}
