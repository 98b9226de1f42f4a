package requests

import (
	"context"
	"time"

	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// Find finds the requests that the process's web server is serving, and the HttpClient calls in progress.
// Find captures the stacks of all threads, and then walks the heap without stopping the program. With WalkOptions.Stop
// all this is done once more while all threads stand still. If ctx ends, the result has everything found until then,
// and is Partial.
func Find(ctx context.Context, p *session.Process, o session.WalkOptions) (*snapshot.Requests, error) {
	look := func(ctx context.Context, o session.WalkOptions) (*snapshot.Requests, error) {
		out, err := findAll(ctx, p, o, servingThreads{}, wanted{stacks: true})
		if out == nil {
			return nil, err
		}
		return out.Requests, err
	}
	before, err := look(ctx, o)
	if err != nil || !o.Stop || !p.Moments().Changes() {
		return before, err
	}
	o.Progress, o.Doing, o.MaxCPU = nil, nil, 0
	held, stop := session.AtRest(ctx, p, o.MaxPause, before, func(ctx context.Context) (*snapshot.Requests, error) {
		return look(ctx, o)
	})
	held.Stop = stop
	return held, p.Alive()
}

// InFlight is what a process had begun and not ended, at one moment.
type InFlight struct {
	Requests *snapshot.Requests
	Tasks    *snapshot.Tasks
	Begun    map[string]int // requests that each connection has begun since its start, by the connection's id
	// Waiting has each waiting chain without a request, by the address of the innermost method's object. At most
	// maxWaiting.
	Waiting map[uint64]WaitingChain
	Sources []tasks.SourceWait // methods that wait for a TaskCompletionSource: some of each

	Methods *tasks.MethodObjects // nil: not known
}

// WaitingChain is one wait of a chain.
type WaitingChain struct {
	Key uint64 // ChainKey
	// For is the address of the awaited object: a method that has gone on and waits again waits for another object,
	// but for objects that a library uses again, such as those of sockets.
	For uint64
}

// maxWaiting bounds InFlight.Waiting.
const maxWaiting = 200_000

// FindInFlight is Find together with the async methods of the same walk. blocking: a thread may be in a call of
// HttpClient that SendsBlocking reports. stacks: the stacks of threads are captured, for requests that threads run.
func FindInFlight(ctx context.Context, p *session.Process, o session.WalkOptions, blocking, stacks bool) (
	*InFlight, error,
) {
	return findAll(ctx, p, o, servingThreads{blocking: blocking}, wanted{stacks: stacks, progress: true})
}

// wanted says what to read besides requests and calls.
type wanted struct {
	stacks   bool // of all threads, for requests that threads run
	progress bool // tasks, and what two looks are compared by
}

func findAll(ctx context.Context, p *session.Process, o session.WalkOptions, threads servingThreads, how wanted) (
	out *InFlight, err error,
) {
	if p.Managed == nil || p.Managed.Objects == nil {
		return nil, p.NoRuntimeError("requests")
	}
	if p.Walking {
		return nil, session.NestedError(0)
	}
	start := time.Now()
	if how.stacks {
		if threads, err = findServingThreads(ctx, p); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	within := tasks.RewalkWithin
	if how.progress {
		within = rewalkShortly
	}
	p.Engine.Begin()
	l := looks{p: p, ctx: ctx, o: o, threads: threads, progress: how.progress}
	if err := l.walk(within); err != nil {
		return nil, p.WalkError(err)
	}
	out = &InFlight{Requests: l.best.result(l.census), Begun: l.best.counts, Waiting: l.best.waiting}
	if how.progress {
		l.best.Walk.Notes = true
		out.Tasks = l.best.Walk.Result(l.census)
		out.Sources = l.best.Walk.Sources
		if out.Methods = l.best.Walk.Noted; out.Methods != nil {
			t := out.Tasks
			out.Methods.Whole = out.Methods.Whole && !t.Partial && t.Unread == 0 && t.ConsistentShare == 1
		}
	}
	out.Requests.Duration = time.Since(start)
	return out, p.Alive()
}
