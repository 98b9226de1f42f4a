package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/testenv"
)

// TestSites: the places with the most allocations are found, and named.
func TestSites(t *testing.T) {
	a := testenv.Start(t, "events", testenv.Options{Args: []string{"--kinds", "alloc", "--max-seconds", "120"}})
	p, err := clrsnap.Open(context.Background(), a.PID, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := events.Subscribe(t.Context(), p, events.Options{Monitor: events.MonitorAllocations})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	sites, err := collect(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	var b strings.Builder
	show(&b, sites)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 10 ||
		!strings.HasSuffix(lines[0], " objects  Events.Allocate+Node in Events.Allocate.Nodes(int)") {
		t.Errorf("got\n%s", b.String())
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with result %q and exit code %d", result, code)
	}
}

// TestEnd: the end of the program is not an error.
func TestEnd(t *testing.T) {
	a := testenv.Start(t, "events", testenv.Options{Args: []string{"--kinds", "alloc", "--max-seconds", "120"}})
	p, err := clrsnap.Open(context.Background(), a.PID, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := events.Subscribe(t.Context(), p, events.Options{Monitor: events.MonitorAllocations})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with result %q and exit code %d", result, code)
	}
	if _, err := collect(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// TestShow: the places come in the order of their allocations, in MiB.
func TestShow(t *testing.T) {
	var b strings.Builder
	show(&b, map[site]*use{
		{class: 1}: {name: "A in F()", bytes: 1 << 20, objects: 5},
		{class: 2}: {name: "B in G()", bytes: 3 << 19, objects: 7},
	})
	const want = "     1.5 MiB            7 objects  B in G()\n     1.0 MiB            5 objects  A in F()\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
