package gather

import (
	"slices"
	"testing"
	"time"

	"clrsnap/snapshot"
)

func TestPlace(t *testing.T) {
	of := func(module, method string) snapshot.Frame {
		return snapshot.Frame{Kind: snapshot.Managed, Module: module, Method: method}
	}
	const core, logging = "System.Private.CoreLib", "Microsoft.Extensions.Logging.Console"
	write := snapshot.Frame{Kind: snapshot.Native, Module: "libc.so.6", Method: "write"}
	flush, log := of(core, "System.IO.StreamWriter.Flush"), of(logging, "Microsoft.Extensions.Logging.Console.Log")
	stub, own := of("", "[IL stub]"), of("Shop", "Shop.Orders.Add")
	for _, tt := range []struct {
		frames []snapshot.Frame
		want   string
	}{
		{[]snapshot.Frame{write, stub, flush, log, own}, own.Method},
		{[]snapshot.Frame{write, stub, flush, log}, log.Method},
		{[]snapshot.Frame{write, stub, flush}, flush.Method},
		{[]snapshot.Frame{write}, "write"},
		{nil, "code that is not known"},
	} {
		if got := Place(tt.frames); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestChildText(t *testing.T) {
	for _, tt := range []struct {
		commands map[int]string
		want     string
	}{
		{nil, ""}, {map[int]string{12: "sleep"}, ", sleep (12)"}, {map[int]string{12: "sleep", 13: "cat"}, ""},
		{map[int]string{12: "sleep", 13: "sleep"}, ", one of 2 with the command sleep"},
	} {
		if got := childText(tt.commands); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestTexts(t *testing.T) {
	of := func(local string, sent time.Duration) *Socket {
		return &Socket{Local: local, Remote: "10.0.0.9:80", State: "established", Sent: sent}
	}
	got := Texts([]*Socket{of("10.0.0.1:1", 28*time.Second), of("10.0.0.1:2", 3*time.Second),
		of("10.0.0.1:3", 28*time.Second)})
	want := []string{"2 connections → 10.0.0.9:80: last sent 28 s ago, nothing received.",
		"10.0.0.1:2 → 10.0.0.9:80: last sent 3.0 s ago, nothing received."}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
