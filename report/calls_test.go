package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

func TestCalls(t *testing.T) {
	busy, resting, events := profiletest.BusyShop(), profiletest.RestingShop(), profiletest.EventShop()
	for name, c := range map[string]struct {
		r *profile.Recording
		o CallsOptions
	}{
		"callers": {busy, CallsOptions{Pattern: "Array.Sort",
			TopOptions: TopOptions{Terminal: Terminal{Width: 100}}}},
		"callers-few": {busy, CallsOptions{Pattern: "o",
			TopOptions: TopOptions{Terminal: Terminal{Width: 100}, Rows: 3}}},
		"callers-event": {events, CallsOptions{Pattern: "System.Byte[]"}},
		"callers-native": {resting, CallsOptions{Pattern: "libc.so.6!",
			TopOptions: TopOptions{Terminal: Terminal{Width: 80}}}},
		"callers-idle": {resting, CallsOptions{Pattern: "LifoSemaphore.Wait",
			TopOptions: TopOptions{Terminal: Terminal{Width: 100}, Idle: true}}},
		"callees": {busy, CallsOptions{Pattern: "Submit", Kind: Callees,
			TopOptions: TopOptions{Terminal: Terminal{Width: 80}}}},
		"callees-color": {events, CallsOptions{Pattern: "^Shop.*Main", Kind: Callees,
			TopOptions: TopOptions{Terminal: Terminal{Width: 100, Color: true}}}},
		"path":     {resting, CallsOptions{Kind: Path, TopOptions: TopOptions{Terminal: Terminal{Width: 100}}}},
		"path-few": {busy, CallsOptions{Kind: Path, TopOptions: TopOptions{Terminal: Terminal{Width: 80}, Rows: 2}}},
	} {
		var b bytes.Buffer
		if err := Calls(&b, c.r, c.o); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		profiletest.Golden(t, "calls-"+name+".txt", b.Bytes())
		checkTerminal(t, b.String(), c.o.Color)
		if c.o.Kind == Callers && c.o.Rows > 0 || c.o.Color {
			continue
		}
		b.Reset()
		err := CallsJSON(&b, c.r, c.o)
		if err != nil || !json.Valid(b.Bytes()) || strings.Index(b.String(), "\n") != b.Len()-1 {
			t.Errorf("%s: %v: %.200s", name, err, b.Bytes())
		}
	}
	for name, o := range map[string]CallsOptions{
		"callers": {Pattern: "Array.Sort", TopOptions: TopOptions{Rows: 3}},
		"callees": {Pattern: "Array.Sort", Kind: Callees}, "path": {Kind: Path},
	} {
		var b, indented bytes.Buffer
		r := only(profile.CPU)(profiletest.BusyShop())
		if err := errors.Join(CallsJSON(&b, r, o), json.Indent(&indented, b.Bytes(), "", "  ")); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, "calls-"+name+".json", indented.Bytes())
	}
}

func TestCallsOfNothing(t *testing.T) {
	resting := profiletest.RestingShop()
	idle := resting.Select(profile.Selection{
		Threads: func(t *profile.RecordedThread) bool { return t.Role == "Debugger" },
	})
	for _, c := range []struct {
		r    *profile.Recording
		o    CallsOptions
		want string
	}{
		{resting, CallsOptions{Pattern: "Shop.Sumbit"},
			`no function matches "Shop.Sumbit": the nearest names are Queue.Submit, Program.Main`},
		{resting, CallsOptions{Pattern: "qqq["}, `no function matches "qqq["`},
		{resting, CallsOptions{Pattern: "\x1b[31m"}, `no function matches "\x1b[31m"`},
		{resting, CallsOptions{Pattern: "LifoSemaphore"},
			`there are only idle threads in functions that match "LifoSemaphore": --idle shows them`},
		{idle, CallsOptions{Kind: Path}, "there are only idle threads: --idle shows them"},
		{&profile.Recording{}, CallsOptions{Kind: Path}, "there are no stacks"},
	} {
		var b bytes.Buffer
		err := Calls(&b, c.r, c.o)
		if err == nil || err.Error() != c.want || b.Len() > 0 {
			t.Errorf("%+v: %v, want %s; %q", c.o, err, c.want, b.String())
		}
	}
}

func TestMatching(t *testing.T) {
	r := &profile.Recording{Functions: []profile.Function{
		{Kind: snapshot.Managed, Display: "Shop.Orders.Handle{async}", Short: "Orders.Handle{async}",
			Signature: "(int)",
			Method:    "Shop.Orders+<Handle>d__3.MoveNext"},
		{Kind: snapshot.Managed, Display: "System.Builder<Shop.Orders.Handle>.MoveNext",
			Short: "Builder<Orders.Handle>.MoveNext"},
		{Kind: snapshot.Managed, Display: "System.Threading.Thread.Sleep", Short: "Thread.Sleep", Signature: "(int)"},
		{Kind: snapshot.Managed, Display: "System.Threading.Thread.SleepInternal", Short: "Thread.SleepInternal"},
		{Kind: snapshot.Native, Method: "exp", Display: "exp", Short: "exp", Module: "libm.so.6"},
		{Kind: snapshot.Native, Display: "[libm.so.6]", Short: "[libm.so.6]", Module: "libm.so.6"},
		{Kind: snapshot.Event, Display: "string", Short: "string"},
		{Kind: snapshot.Managed, Display: "string.Concat", Short: "string.Concat", Signature: "(string, string)"},
	}}
	for pattern, want := range map[string]string{
		"Orders.Handle": "[0]", "Builder<Orders.Handle>.MoveNext": "[1]", "d__3": "[0]", "Thread.Sleep": "[2]",
		"Sleep": "[2 3]", "Thread.Sleep(int)": "[2]", "libm.so.6!exp": "[4]", "[libm.so.6]": "[5]", "string": "[6]",
		"(string": "[7]", "^System.*Sleep$": "[2]", "Sl.*nal$": "[3]",
	} {
		match, err := matching(r, pattern)
		if err != nil {
			t.Errorf("%q: %v", pattern, err)
			continue
		}
		var got []int
		for i := range r.Functions {
			if match(&r.Functions[i]) {
				got = append(got, i)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%q: %v, want %s", pattern, got, want)
		}
	}
}
