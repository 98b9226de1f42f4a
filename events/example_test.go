package events_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os/exec"

	"clrsnap"
	"clrsnap/events"
)

// Every exception of a running process, with the methods on its stack.
func ExampleSubscribe() {
	ctx := context.Background()
	p, err := clrsnap.Open(ctx, 4242, clrsnap.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	s, err := events.Subscribe(ctx, p, events.Options{Monitor: events.MonitorExceptions})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for {
		n, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			break // the process has exited
		}
		if err != nil {
			log.Fatal(err)
		}
		if n.Event != events.ExceptionThrown {
			continue
		}
		fmt.Println(n.ClassName)
		err = n.DoStackSnapshot(
			func(id clrsnap.FunctionID, _ uint64, _ *clrsnap.FrameInfo, _ *clrsnap.Context, _ any) error {
				if id == 0 {
					return nil
				}
				name, err := p.FunctionName(id)
				fmt.Println("    at", name.Display+name.Signature)
				return err
			}, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		if err != nil {
			fmt.Println("   ", err)
		}
	}
}

// The threads that start threads in a program, from its start.
func ExampleSubscribeCommand() {
	ctx, cmd := context.Background(), exec.Command("dotnet", "Shop.dll")
	s, err := events.SubscribeCommand(ctx, cmd, clrsnap.Options{}, events.Options{Monitor: events.MonitorThreads})
	if err != nil {
		log.Fatal(err)
	}
	defer cmd.Wait()
	defer s.Close()
	for {
		n, err := s.Next(ctx)
		if err != nil {
			break
		}
		fmt.Println(n.Event, n.Thread, n.Other)
	}
}
