// Command allocsites prints the ten places of a running .NET program with the most allocations: a
// complete example of a profiler that subscribes to notifications and takes the synchronous stack of
// each notification.
//
//	go run ./examples/allocsites PID
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"clrsnap"
	"clrsnap/events"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "allocsites:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("give the process id of a .NET program")
	}
	pid, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return fmt.Errorf("%q is not a process id", os.Args[1])
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	p, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	s, err := events.Subscribe(ctx, p, events.Options{Monitor: events.MonitorAllocations})
	if err != nil {
		return err
	}
	defer s.Close()
	sites, err := collect(ctx, s)
	if err != nil {
		return err
	}
	show(os.Stdout, sites)
	return nil
}

// site is a method that allocates objects of a class.
type site struct {
	class  clrsnap.ClassID
	method clrsnap.FunctionID
}

// use is the use of a site.
type use struct {
	name           string
	bytes, objects float64
}

// collect takes notifications until the time is up or the program ends.
func collect(ctx context.Context, s *events.Subscription) (map[site]*use, error) {
	sites := map[site]*use{}
	for {
		n, err := s.Next(ctx)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return sites, nil
		}
		if err != nil {
			return nil, err
		}
		if n.Event != events.ObjectAllocated {
			continue
		}
		at := site{class: n.Class, method: leaf(n)}
		u := sites[at]
		if u == nil {
			// Names are worked out at once: code and classes can be unloaded.
			u = &use{name: describe(s.Process(), at)}
			sites[at] = u
		}
		u.bytes += n.Bytes
		u.objects += n.Objects
	}
}

// errFound stops a walk that has seen enough.
var errFound = errors.New("found")

// leaf is the method at the top of the thread's stack.
func leaf(n *events.Notification) clrsnap.FunctionID {
	var method clrsnap.FunctionID
	err := n.DoStackSnapshot(func(id clrsnap.FunctionID, _ uint64, _ *clrsnap.FrameInfo, _ *clrsnap.Context,
		_ any) error {
		if id == 0 {
			return nil // a run of unmanaged frames
		}
		method = id
		return errFound
	}, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
	if !errors.Is(err, errFound) {
		return 0 // the runtime allocates for itself
	}
	return method
}

func describe(p *clrsnap.Process, at site) string {
	class, method := "an unloaded class", "the runtime itself"
	if n, err := p.ClassName(at.class); err == nil {
		class = n.Display
	}
	if at.method != 0 {
		method = "unloaded code"
		if n, err := p.FunctionName(at.method); err == nil {
			method = n.Display + n.Signature
		}
	}
	return class + " in " + method
}

func show(w io.Writer, sites map[site]*use) {
	uses := make([]*use, 0, len(sites))
	for _, u := range sites {
		uses = append(uses, u)
	}
	slices.SortFunc(uses, func(a, b *use) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, u := range uses[:min(10, len(uses))] {
		fmt.Fprintf(w, "%8.1f MiB %12.0f objects  %s\n", u.bytes/(1<<20), u.objects, u.name)
	}
}
