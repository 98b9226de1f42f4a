package clrsnap_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"clrsnap"
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

// The asynchronous walk of the profiling API, step by step: suspend, seed, walk,
// resume; managed frames from DoStackSnapshot, runs of unmanaged ones from
// UnmanagedWalk.
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
	err = s.DoStackSnapshot(func(id clrsnap.FunctionID, ip uint64, _ *clrsnap.FrameInfo, ctx *clrsnap.Context, _ any) error {
		if id == 0 {
			_, err := s.UnmanagedWalk(ctx, native)
			return err
		}
		name, err := p.FunctionName(id)
		fmt.Println(name.Display + name.Signature)
		return err
	}, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil, seed)
	if errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE) {
		fmt.Println("try again")
	}
}
