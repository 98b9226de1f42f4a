package clrsnap

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"clrsnap/internal/inject"
	"clrsnap/internal/target/live"
)

// agentLauncher waits for the agents of a program that is started, and of those
// that it starts in turn: they inherit its environment.
type agentLauncher struct {
	listener *inject.Listener
	o        SubscribeOptions
	opts     Options
	met      chan metAgent
	stop     context.CancelFunc
}

// metAgent is an agent that has connected, and was told what is wanted.
type metAgent struct {
	pid  int
	link *agentLink
	err  error
}

// launchWithAgent has cmd, which has not been started yet, load the agent.
func launchWithAgent(cmd *exec.Cmd, o SubscribeOptions, opts Options) (*agentLauncher, error) {
	l, err := inject.Listen()
	if err != nil {
		return nil, err
	}
	if cmd.Env, err = l.Environment(cmd.Environ()); err != nil {
		l.Close()
		return nil, err
	}
	return &agentLauncher{listener: l, o: o, opts: opts, met: make(chan metAgent, 64)}, nil
}

// serve answers the agents that connect, until the launcher is closed. A program
// waits for its answer before it starts, for two seconds at most. Agents of processes
// that are not wanted leave again.
func (l *agentLauncher) serve(wanted func(pid int) bool) {
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	go func() {
		var answering sync.WaitGroup
		for ctx.Err() == nil {
			a, err := l.listener.Accept(ctx)
			if err != nil {
				time.Sleep(time.Millisecond) // out of files, say
				continue
			}
			answering.Add(1)
			go func() {
				defer answering.Done()
				l.answer(a, wanted(a.PID))
			}()
		}
		answering.Wait()
		close(l.met)
	}()
}

func (l *agentLauncher) answer(a *inject.Agent, wanted bool) {
	if !wanted {
		a.Conn.Close()
		return
	}
	m := metAgent{pid: a.PID}
	m.link, m.err = newAgentLink(a, l.o, l.opts)
	l.met <- m
}

// close ends the service. Agents that nobody has taken are hung up on.
func (l *agentLauncher) close() {
	if l.stop != nil {
		l.stop()
		for m := range l.met {
			if m.err == nil {
				m.link.detach()
			}
		}
	}
	l.listener.Close()
}

// await returns the agent of a process.
func (l *agentLauncher) await(ctx context.Context, pid int) (*agentLink, error) {
	l.serve(func(p int) bool { return p == pid })
	for {
		select {
		case m, ok := <-l.met:
			if !ok {
				return nil, errNotLoaded(pid)
			}
			return m.link, m.err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNotLoaded(pid), ctx.Err())
		case <-time.After(exitEvery):
			if ended(pid) {
				return nil, errNotLoaded(pid)
			}
		}
	}
}

// exitEvery is how often it is looked whether a program has ended before it loaded
// the agent.
const exitEvery = 50 * time.Millisecond

func errNotLoaded(pid int) error {
	return fmt.Errorf("no .NET runtime in process %d has loaded the agent: is it a .NET program, and does it run without DOTNET_EnableDiagnostics=0?", pid)
}

func ended(pid int) bool {
	p, err := live.Open(pid)
	if err != nil {
		return gone(err)
	}
	p.Close()
	return false
}
