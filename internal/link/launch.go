package link

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/inject"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
)

// Launcher waits for the agents of a program that is started, and of those
// that it starts in turn: they inherit its environment.
type Launcher struct {
	listener *inject.Listener
	want     agent.Subscription
	met      chan Met
	stop     context.CancelFunc
}

// Met is an agent that has connected and got its subscription, or why that failed.
type Met struct {
	PID  int
	Link *Link
	Err  error
}

// Launch prepares cmd, which has not been started yet, to load the agent.
func Launch(cmd *exec.Cmd, want agent.Subscription) (*Launcher, error) {
	l, err := inject.Listen()
	if err != nil {
		return nil, err
	}
	if cmd.Env, err = l.Environment(cmd.Environ()); err != nil {
		l.Close()
		return nil, err
	}
	return &Launcher{listener: l, want: want, met: make(chan Met, 64)}, nil
}

// Serve answers the agents that connect, until the launcher is closed. A program
// waits for its answer before it starts, for two seconds at most. Agents of processes
// that are not wanted leave again.
func (l *Launcher) Serve(wanted func(pid int) bool) {
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

func (l *Launcher) answer(a *inject.Agent, wanted bool) {
	if !wanted {
		a.Conn.Close()
		return
	}
	m := Met{PID: a.PID}
	m.Link, m.Err = New(a, l.want)
	l.met <- m
}

// Met has the agents that have connected; it is closed when there will be no more.
func (l *Launcher) Met() <-chan Met { return l.met }

// Close stops serving, and detaches the agents that nobody has taken from Met.
func (l *Launcher) Close() {
	if l.stop != nil {
		l.stop()
		for m := range l.met {
			if m.Err == nil {
				m.Link.Detach()
			}
		}
	}
	l.listener.Close()
}

// Await returns the agent of a process.
func (l *Launcher) Await(ctx context.Context, pid int) (*Link, error) {
	l.Serve(func(p int) bool { return p == pid })
	for {
		select {
		case m, ok := <-l.met:
			if !ok {
				return nil, errNotLoaded(pid)
			}
			return m.Link, m.Err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNotLoaded(pid), ctx.Err())
		case <-time.After(exitEvery):
			if exited(pid) {
				return nil, errNotLoaded(pid)
			}
		}
	}
}

// exitEvery is how often Await checks whether the program has exited before it loaded the
// agent.
const exitEvery = 50 * time.Millisecond

func errNotLoaded(pid int) error {
	return fmt.Errorf("no .NET runtime in process %d has loaded the agent: "+
		"give a .NET program, and start it without DOTNET_EnableDiagnostics=0", pid)
}

// exited reports whether a process has exited.
func exited(pid int) bool {
	p, err := live.Open(pid)
	if err != nil {
		return session.Exited(err)
	}
	p.Close()
	return false
}
