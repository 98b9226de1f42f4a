package clrsnap_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"clrsnap"
	"clrsnap/snapshot"
)

// Every thread's managed methods, leaf first.
func Example() {
	p, err := clrsnap.Open(context.Background(), 4242, clrsnap.Options{})
	if err != nil {
		log.Fatal(err) // says in one sentence what to do
	}
	defer p.Close()
	s, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range s.Threads {
		fmt.Printf("%d %q: %s\n", t.OSThreadID, t.Name, t.State)
		for _, f := range t.Frames {
			if f.FunctionID != 0 {
				fmt.Println("   ", f.Display+f.Signature)
			}
		}
		if !t.Complete {
			fmt.Println("    incomplete:", t.Error)
		}
	}
}

// The asynchronous walk of the profiling API, step by step: suspend, seed, walk, resume; managed frames from
// DoStackSnapshot, runs of unmanaged frames from UnmanagedWalk.
func ExampleSuspension_DoStackSnapshot() {
	p, err := clrsnap.Open(context.Background(), 4242, clrsnap.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	threads, err := p.Threads()
	if err != nil {
		log.Fatal(err)
	}
	s, err := p.Suspend(threads[0].ID)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Release()
	native := func(f clrsnap.NativeFrame) error {
		fmt.Printf("%s!%s+%#x\n", f.Module, f.Symbol, f.Offset)
		return nil
	}
	seed, err := s.Seed()
	if err != nil {
		log.Fatal(err)
	}
	// The run of unmanaged frames above the seed is not part of the walk.
	leaf := s.Context()
	if _, err := s.UnmanagedWalk(&leaf, native); err != nil {
		log.Fatal(err)
	}
	callback := func(
		id clrsnap.FunctionID, ip uint64, _ *clrsnap.FrameInfo, ctx *clrsnap.Context, _ any,
	) error {
		if id == 0 {
			_, err := s.UnmanagedWalk(ctx, native)
			return err
		}
		name, err := p.FunctionName(id)
		fmt.Println(name.Display + name.Signature)
		return err
	}
	err = s.DoStackSnapshot(callback, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil, seed)
	if errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE) {
		fmt.Println("try again")
	}
}

// The frames of every thread, as a sequence.
func ExampleProcess_Frames() {
	p, err := clrsnap.Open(context.Background(), 4242, clrsnap.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	threads, err := p.Threads()
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range threads {
		if t.ID == 0 {
			continue // the runtime does not know the thread
		}
		fmt.Println(t.OSThreadID, t.Name)
		for f, err := range p.Frames(t.ID, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil) {
			if err != nil {
				fmt.Println("   ", err)
				break
			}
			fmt.Printf("    %v at %#x\n", f.ID, f.IP)
		}
	}
}

// All stacks of one instant; the process may exit meanwhile.
func ExampleProcess_SnapshotAtOnce() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p, err := clrsnap.Open(ctx, 4242, clrsnap.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	s, err := p.SnapshotAtOnce(ctx, nil)
	if s == nil {
		log.Fatal(err)
	}
	fmt.Printf("%d threads at %v; %d are missing\n", len(s.Threads), s.CapturedAt, s.Missing())
}

// The crashed thread comes with its exception.
func ExampleOpenCore() {
	ctx := context.Background()
	p, err := clrsnap.OpenCore(ctx, "core.4242", clrsnap.CoreOptions{Sysroot: "/srv/image"})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	s, err := p.SnapshotAll(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range s.Threads {
		if t.Crashed && t.Exception != nil {
			fmt.Println(t.OSThreadID, t.Exception.Type, t.Exception.Message)
		}
	}
}

// The .NET processes of this machine, and why some cannot be opened.
func ExampleDiscover() {
	found, err := clrsnap.Discover(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range found {
		var attach *clrsnap.AttachError
		switch {
		case errors.Is(f.Err, clrsnap.ErrPermission) && errors.As(f.Err, &attach):
			fmt.Println(f.PID, "is not ours:", attach.Remedy)
		case f.Err != nil:
			fmt.Println(f.PID, f.Err)
		default:
			fmt.Println(f.PID, f.Runtime.Version, f.Command)
		}
	}
}

// The obstacles to stacks, and their remedies.
func ExampleDiagnose() {
	for _, c := range clrsnap.Diagnose(context.Background(), 4242) {
		if c.Outcome != snapshot.Fine {
			fmt.Println(c.Name, c.Detail, c.Remedy)
		}
	}
}
