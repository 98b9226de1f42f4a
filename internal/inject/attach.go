package inject

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/cgroup"
	"clrsnap/internal/diagnostics"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target/live"
)

// An Agent is a connected agent. It sends its hello and waits 2 seconds for a request;
// internal/agent has the protocol. When the connection is closed, the agent leaves.
type Agent struct {
	Conn *net.UnixConn
	PID  int // of the agent's process, in our PID namespace; 0: not visible there

	answer chan error // the runtime's answer, once; nil: the runtime was not asked
}

// Loaded waits for the runtime's answer to the request to load the agent. The answer comes after
// the agent's first request, or after the agent was hung up on. The error is one sentence, mostly
// an *Error. For an agent that was loaded at a program's start, Loaded returns nil at once.
// Loaded must be called only once.
func (a *Agent) Loaded() error {
	if a.answer == nil {
		return nil
	}
	return <-a.answer
}

const (
	// loadLimit bounds the time in which a runtime loads the agent, including at most 5.3 s for
	// detaching an earlier agent (profdetach.cpp).
	loadLimit  = 10 * time.Second
	leaveLimit = 6 * time.Second
	againAfter = 100 * time.Millisecond
	// noticeLimit bounds the time in which an agent notices the death of its reader.
	noticeLimit = 2 * time.Second
	// connectLimit bounds the wait for an agent's connection after the runtime has answered that
	// the agent is loaded. The agent should have connected by then.
	connectLimit = 2 * time.Second
)

// Attach loads the agent into a running process and waits for the agent's connection. It leaves
// nothing behind in the file system. The error is one sentence with a remedy, mostly an *Error, a
// *live.AttachError or ErrNoLibrary. The end of ctx ends the wait, and has no effect on a
// connected agent.
func Attach(ctx context.Context, of procfs.Dir) (*Agent, error) {
	library, err := Library(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	return attach(ctx, of, library)
}

func attach(ctx context.Context, of procfs.Dir, library []byte) (*Agent, error) {
	p, err := live.OpenDir(of)
	if err != nil {
		return nil, err
	}
	a, err := attachTo(ctx, p, library)
	if err != nil {
		err = explain(p, err)
		p.Close()
		return nil, err
	}
	answer := a.answer
	a.answer = make(chan error, 1)
	go func() {
		err := <-answer
		if err != nil {
			err = explain(p, err)
		}
		p.Close()
		a.answer <- err
	}()
	return a, nil
}

func attachTo(ctx context.Context, p *live.Process, library []byte) (*Agent, error) {
	f, err := prepare(p, library)
	if err != nil {
		return nil, err
	}
	a, err := load(ctx, p, f, library)
	if e := f.Close(); e != nil && err == nil {
		a.Conn.Close()
		<-a.answer
		err = e
	}
	return a, err
}

// prepare unpacks the library for a process that is ready to load the library.
func prepare(p *live.Process, library []byte) (*folder, error) {
	if err := checkReady(p); err != nil {
		return nil, err
	}
	return unpack(p.Dir(), library)
}

// checkReady makes the checks that do not touch the process.
func checkReady(p *live.Process) error {
	u, err := userOf(p.Dir())
	if err == nil {
		err = checkRights(p.PID(), u)
	}
	if err != nil {
		return err
	}
	if err := diagnostics.Listens(p.Dir()); err != nil {
		return err
	}
	main, err := p.Thread(p.PID())
	if err != nil {
		return err
	}
	switch main.State {
	case 'T':
		return &Error{PID: p.PID(), Err: ErrStopped,
			Remedy: fmt.Sprintf("let the process go on with kill -CONT %d, and try again", p.PID())}
	case 't':
		return &Error{PID: p.PID(), Err: ErrStopped, Detail: "by a debugger",
			Remedy: "end the debugger, or let the process go on, and try again"}
	}
	groups, err := cgroup.NewReader(p.Dir()).State()
	if err != nil {
		return nil // a kernel without control groups
	}
	return checkMemory(p.PID(), &groups)
}

// room is more memory than the agent, and the runtime for the agent, take in the process (docs/costs.md), in bytes.
const room = 16 << 20

// checkMemory makes sure that the kernel does not kill the process for the memory that the agent takes.
func checkMemory(pid int, groups *cgroup.State) error {
	m := groups.LeastMemory()
	if m == nil || m.Left() >= room {
		return nil
	}
	return &Error{PID: pid, Err: ErrNoMemory,
		Detail: fmt.Sprintf("group %s has %d of %d MiB left, and the agent may need %d", m.Group, max(m.Left(), 0)>>20,
			m.Limit()>>20, room>>20),
		Remedy: "raise the limit, or look without the agent, such as with clrsnap stack or clrsnap heap"}
}

// load makes the runtime load the agent from f and waits until the agent connects. The runtime
// answers only later, because the agent keeps the runtime waiting for its first request.
func load(ctx context.Context, p *live.Process, f *folder, library []byte) (*Agent, error) {
	waiting, stopWaiting := context.WithCancelCause(ctx)
	defer stopWaiting(nil)
	asking, stopAsking := context.WithTimeoutCause(context.WithoutCancel(ctx), loadLimit, errNoAnswer)
	answer := make(chan error, 1)
	go func() {
		defer stopAsking()
		err := request(asking, p, f, library)
		answer <- err
		if err == nil {
			time.AfterFunc(connectLimit, func() { stopWaiting(ErrNoAgent) })
		} else {
			stopWaiting(err)
		}
	}()
	for {
		a, err := accept(waiting, f.listener)
		if err != nil {
			stopAsking()
			<-answer
			return nil, err
		}
		if a.PID == p.PID() {
			a.answer = answer
			return a, nil
		}
		a.Conn.Close() // another process of the same user
	}
}

// request asks the runtime to load the agent from f, again and again while an earlier agent is
// about to leave.
func request(ctx context.Context, p *live.Process, f *folder, library []byte) error {
	// Checked first: the runtime maps the library before it sees that there is no room.
	mayLeave := hasAgent(p) && startedProfiler(p) == ""
	begun, giveUp := time.Now(), time.After(leaveLimit)
	profiler := diagnostics.Profiler{CLSID: agent.CLSID, Library: resident(p.Dir(), library), Data: []byte(f.socket())}
	if profiler.Library == "" {
		profiler.Library = f.library()
	}
	for {
		if err := p.Alive(); err != nil {
			return err
		}
		err := diagnostics.Attach(ctx, p.Dir(), profiler)
		var refusal *diagnostics.ServerError
		switch {
		case errors.As(err, &refusal) && refusal.HRESULT == modNotFound && profiler.Library != f.library():
			profiler.Library = f.library() // the earlier file has just been closed, or belongs to another user
			continue
		case refusal == nil || refusal.HRESULT != otherProfilerActive:
			return err
		case !mayLeave, time.Since(begun) > noticeLimit && agentWorks(p):
			return otherProfiler(p)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-giveUp:
			return otherProfiler(p)
		case <-time.After(againAfter):
		}
	}
}

// errNoAnswer is the cause of a timeout while waiting for a runtime.
var errNoAnswer = fmt.Errorf("%w within %v", ErrNoAnswer, loadLimit)

// accept waits for an agent of any process.
func accept(ctx context.Context, l *net.UnixListener) (*Agent, error) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		l.SetDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	c, err := l.AcceptUnix()
	if !stop() {
		<-interrupted
		l.SetDeadline(time.Time{})
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	pid, err := diagnostics.PeerPID(c)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Agent{Conn: c, PID: pid}, nil
}
