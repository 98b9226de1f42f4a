package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// TestRequestsVerb: requests lists the requests of a server with hanging requests, live and in a core dump.
func TestRequestsVerb(t *testing.T) {
	t.Parallel()
	testenv.EachOf(t, testenv.Supported(), testRequestsVerb)
}

func testRequestsVerb(t *testing.T, runtime string) {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close() // accepts connections, and says nothing
	app := testenv.Start(t, "requests", testenv.Options{Runtime: runtime,
		Args: []string{"--upstream", upstream.Addr().String()},
		Env:  []string{"DOTNET_GCHeapHardLimit=0x4000000"}, // for a small dump
	})
	url := app.Ask("urls")[0]
	for _, path := range []string{"/quick/1", "/source/1", "/source/2", "/thread/3", "/upstream/4", "/upstream/5",
		"/upstream/6", "/task/7"} {
		if strings.HasPrefix(path, "/quick") {
			get(url + path)
		} else {
			go get(url + path + "?key=secret")
		}
	}
	livetest.Await(t, "seven requests have begun", func() bool { return len(app.Ask("begun")) >= 7 })
	pid := fmt.Sprint(app.PID)

	var r result
	answers := regexp.MustCompile(`(?m)^2 × GET 127\.0\.0\.1:\d+/prices for .* · waiting for the answer$`)
	settled := regexp.MustCompile(`(?m)^    127\.0\.0\.1:\d+: 2 calls on 2 of at most 2 connections; 1 call waits ` +
		`for one$`)
	testenv.UntilSeen(t, func() string { // the threads spin first, and calls begin later
		r = good(t, "requests", pid)
		for _, what := range []string{
			"/thread/{id} for", "/task/{id} for", "waiting for a connection", ", 3 calls going out",
		} {
			if !strings.Contains(r.stdout, what) {
				return what
			}
		}
		if strings.Count(r.stdout, "waiting for ManualResetEventSlim") < 2 {
			return "two threads that wait"
		}
		if !answers.MatchString(r.stdout) {
			return "two calls that are sent"
		}
		if !settled.MatchString(r.stdout) { // HttpClient first makes more connections than it may have
			return "two connections, and one call that waits"
		}
		return ""
	})
	r.want(t,
		`^2 × GET /source/\{id\} for \d+ (ms|s)( to .*)? · waiting for a TaskCompletionSource`,
		`^  /source/[12]  HTTP/1\.1  from 127\.0\.0\.1:\d+  for .*  \w+:00000001$`,
		`^    Requests\.Hanging\.Deeper\{async\}\(Gate\)  requests/Hanging\.cs:\d+  requests$`,
		`^1 × GET /thread/\{id\} for .* · waiting for ManualResetEventSlim 0x[0-9a-f]+.*\n  /thread/3 .* on \.NET TP `+
			`Worker \(\d+\)`,
		`^    Requests\.Hanging\.Block\(Gate\)`,
		`^1 × GET /task/\{id\} for .* · waiting for ManualResetEventSlim 0x[0-9a-f]+.*\n  /task/7 .* on \.NET TP `+
			`Worker \(\d+\)`,
		`^    Requests\.Hanging\.OnTask\{lambda [\d_]+\}\(\).*\n`+
			`    awaited by Requests\.Hanging\.OnTask\{async\}\(Gate\)`,
		`^1 × GET 127\.0\.0\.1:\d+/prices for .* · waiting for a connection$`,
		`^7 requests in flight, 3 calls going out`)
	if strings.Contains(r.stdout, "secret") || strings.Contains(r.stdout, "quick") || r.stderr != "" {
		t.Errorf("%s\n%s", r.stdout, r.stderr)
	}
	good(t, "requests", pid, "--query").want(t, `^  /source/1\?key=secret  HTTP/1\.1`)
	wantRequests(t, good(t, "requests", pid, "--json").stdout, true)
	atRest := ""
	testenv.UntilSeen(t, func() string {
		if atRest = good(t, "requests", pid, "--stop", "--json").stdout; !strings.Contains(atRest, `"exact":true`) {
			return "requests of one moment"
		}
		return ""
	})
	wantRequests(t, atRest, true)
	wantRequests(t, good(t, "requests", "--core", testenv.GCoreDump(t, app.PID), "--json").stdout, false)
}

func get(url string) {
	r, err := http.Get(url)
	if err != nil {
		return // the program has ended
	}
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
}

// wantRequests checks the JSON. live: ages, and the targets of descriptors, are known.
func wantRequests(t *testing.T, doc string, live bool) {
	t.Helper()
	var d struct {
		Requests []struct {
			Count       int
			Path, State string
			Call        *struct{ Authority, Phase string }
			Requests    []struct{ ID, Path, Query, Remote, Since string }
			Frames      []struct{ Display string }
			WaitsFor    *struct{ Kind string }
			Wait        *struct{ Kind, Object string }
		}
		Calls []struct {
			Count            int
			Authority, Phase string
			Calls            []struct{ Remote, Request, Since string }
		}
		Pools []struct {
			Active, Queued int
			HTTP1          struct{ All, Maximum int }
		}
	}
	if err := json.Unmarshal([]byte(doc), &d); err != nil {
		t.Fatal(err)
	}
	states, phases, ids := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, g := range d.Requests {
		states[g.Path+" "+g.State] += g.Count
		if w := g.Wait; (g.Path == "/thread/{id}" || g.Path == "/task/{id}") !=
			(w != nil && w.Kind == "ManualResetEventSlim.Wait" && w.Object != "") {
			t.Errorf("%s waits for %+v", g.Path, w)
		}
		for _, r := range g.Requests {
			if ids[r.ID] || r.Query != "" || !strings.HasPrefix(r.Remote, "127.0.0.1:") || r.Since == "" {
				t.Errorf("%+v", r)
			}
			ids[r.ID] = true
		}
	}
	for _, g := range d.Calls {
		phases[g.Phase] += g.Count
		for _, c := range g.Calls {
			if !ids[c.Request] || live && (c.Since == "" || g.Phase == "answer" && c.Remote != g.Authority) {
				t.Errorf("%s %+v", g.Phase, c)
			}
		}
	}
	if states["/source/{id} waiting"] != 2 || states["/thread/{id} waiting"] != 1 ||
		states["/task/{id} waiting"] != 1 ||
		states["/upstream/{id} waiting"] != 3 || phases["answer"] != 2 || phases["connection"] != 1 {
		t.Errorf("%v, %v", states, phases)
	}
	if len(d.Pools) != 1 || d.Pools[0].Active != 2 || d.Pools[0].Queued != 1 || d.Pools[0].HTTP1.Maximum != 2 {
		t.Errorf("%+v", d.Pools)
	}
}
