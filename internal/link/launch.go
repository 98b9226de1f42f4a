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

// Launcher waits for the agents of a program that is started, and of the programs that it starts in turn: they
// inherit the environment.
type Launcher struct {
	listener *inject.Listener
	want     agent.Subscription
	accepted chan Accepted
	stop     context.CancelFunc
}

// Accepted is an agent that has connected and got its subscription, or the error of the attempt.
type Accepted struct {
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
	return &Launcher{listener: l, want: want, accepted: make(chan Accepted, 64)}, nil
}

// Serve answers the agents that connect, until the launcher is closed. A program waits for the answer before the
// program starts, for two seconds at most. Agents of unwanted processes leave again.
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
		close(l.accepted)
	}()
}

func (l *Launcher) answer(a *inject.Agent, wanted bool) {
	if !wanted {
		a.Conn.Close()
		return
	}
	m := Accepted{PID: a.PID}
	want := l.want
	want.ExceptionOffsets, want.Owners = starting(a.PID)
	m.Link, m.Err = New(a, want)
	l.accepted <- m
}

// starting returns the ExceptionOffsets and the Owners of a process whose runtime waits for the agent's answer. If
// starting cannot find them yet, Link.Records passes them on later.
func starting(pid int) (agent.ExceptionOffsets, agent.Owners) {
	ctx, cancel := context.WithTimeout(context.Background(), lookPatience)
	defer cancel()
	p, err := session.Open(ctx, pid, session.Options{})
	if err != nil {
		return agent.ExceptionOffsets{}, agent.Owners{}
	}
	defer p.Close()
	return exceptionOffsets(p), owners(p)
}

// lookPatience is less than the time for which a program waits for its agent's answer. The search takes some
// milliseconds.
const lookPatience = time.Second

// Accepted returns a channel of the agents that have connected. The channel is closed when there will be no more
// agents.
func (l *Launcher) Accepted() <-chan Accepted { return l.accepted }

// Close stops serving, and detaches the agents that nobody has taken from Accepted.
func (l *Launcher) Close() {
	if l.stop != nil {
		l.stop()
		for m := range l.accepted {
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
		case m, ok := <-l.accepted:
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

// exitEvery is the interval at which Await checks whether the program has exited before it loaded the agent.
const exitEvery = 50 * time.Millisecond

func errNotLoaded(pid int) error {
	return fmt.Errorf("no .NET runtime in process %d has loaded the agent: "+
		"give a .NET program, and start it without DOTNET_EnableDiagnostics=0", pid)
}

func exited(pid int) bool {
	p, err := live.Open(pid)
	if err != nil {
		return session.Exited(err)
	}
	p.Close()
	return false
}
