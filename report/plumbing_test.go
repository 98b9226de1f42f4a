package report

import (
	"bytes"
	"strings"
	"testing"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// served is a recording of a method that ASP.NET Core calls on a thread of the pool, with a look at the holder
// of a lock.
func served() *profile.Recording {
	b := profile.NewBuilder(profile.Limits{})
	b.Thread(profile.RecordedThread{OSThreadID: 7, Role: "ThreadPool worker"})
	var stack []int32
	for _, m := range []string{
		"Shop.Orders.Submit", "Shop.Api.Post",
		"Microsoft.AspNetCore.Routing.EndpointMiddleware.Invoke",
		"Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Http.HttpProtocol+<ProcessRequests>d__238`1.MoveNext",
		"System.Threading.ExecutionContext.RunInternal", "System.Threading.ThreadPoolWorkQueue.Dispatch",
		"System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart", "System.Threading.Thread.StartCallback",
	} {
		module := "System.Private.CoreLib"
		if strings.HasPrefix(m, "Microsoft.AspNetCore.") {
			module = "Microsoft.AspNetCore"
		} else if strings.HasPrefix(m, "Shop.") {
			module = "Shop"
		}
		stack = append(stack, b.Location(profile.Location{Function: b.Function(profile.Function{
			Kind: snapshot.Managed, Method: m, Display: m, Short: m, Module: module,
		})}))
	}
	event := func(name string) profile.Function {
		return profile.Function{Kind: snapshot.Event, Display: name, Short: name}
	}
	lock, holder := b.Function(event("lock Shop.Order")), b.Function(event("held by Shop.Orders.Submit"))
	wait := []int32{b.Location(profile.Location{Function: holder}), b.Location(profile.Location{Function: lock})}
	b.Add(profile.Sample{Node: b.Stack(stack), Weight: 1e9, Count: 200})
	b.Add(profile.Sample{
		Node: b.Stack(append(wait, stack[1:]...)), Weight: 1e6, Events: 1, Count: 1, Mode: profile.Contention,
		State: profile.Waiting, At: 5e6,
	})
	b.Hold(profile.Hold{At: 4e6, Waited: 1e5, Lock: lock, Holder: holder, Node: b.Stack(stack)})
	return b.Recording()
}

// TestTopPlumbing: runs of framework frames are one function in tables and trees, unless Plumbing is set, and
// separate functions in JSON.
func TestTopPlumbing(t *testing.T) {
	const run, each = "[pool → Kestrel → ASP.NET]", "System.Threading.ThreadPoolWorkQueue.Dispatch"
	r := served()
	text := func(write func(*bytes.Buffer) error) string {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Error(err)
		}
		return b.String()
	}
	calls := func(pattern string) string {
		return text(func(b *bytes.Buffer) error { return Calls(b, r, CallsOptions{Kind: Callees, Pattern: pattern}) })
	}
	for _, c := range []struct{ name, got, want, not string }{
		{"top", text(func(b *bytes.Buffer) error { return Top(b, r, TopOptions{}) }), run, each},
		{"top, each", text(func(b *bytes.Buffer) error { return Top(b, r, TopOptions{Plumbing: true}) }), each, run},
		{"diff", text(func(b *bytes.Buffer) error { return Diff(b, r, r, TopOptions{}) }), run, each},
		{"JSON", text(func(b *bytes.Buffer) error { return TopJSON(b, r, TopOptions{}) }), each, run},
		{"path", text(func(b *bytes.Buffer) error { return Calls(b, r, CallsOptions{Kind: Path}) }), run, each},
		{"callees of a method", calls("Shop.Api.Post"), "Shop.Orders.Submit", each},
		{"callees of plumbing", calls("ThreadPoolWorkQueue.Dispatch"), each, run},
		{"the holder's callers", text(func(b *bytes.Buffer) error { return Top(b, r, TopOptions{}) }),
			"Shop.Orders.Submit ← Shop.Api.Post", each},
	} {
		if !strings.Contains(c.got, c.want) || strings.Contains(c.got, c.not) {
			t.Errorf("%s: want %q and no %q:\n%s", c.name, c.want, c.not, c.got)
		}
	}
}
