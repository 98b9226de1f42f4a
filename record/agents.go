package record

import (
	"fmt"
	"os/exec"

	"clrsnap/internal/agent"
	"clrsnap/internal/link"
	"clrsnap/internal/session"
)

// attachLater loads the agent into a child process, in a goroutine because loading can take seconds.
func (e *eventSampler) attachLater(rp *recordedProcess) {
	e.arriving.Add(1)
	go func() {
		defer e.arriving.Done()
		l, err := e.attach(rp.p)
		e.arrivals <- link.Accepted{PID: rp.p.PID(), Link: l, Err: err}
	}()
}

func (e *eventSampler) attach(p *session.Process) (*link.Link, error) {
	if err := subscribed.Attachable(&e.o); err != nil {
		return nil, err
	}
	want := e.r.o.request(p.Options.MaxPause)
	if p.Found != nil && !link.HasWaits(p.Found.Version) {
		if want.Events &^= agent.Waits; want.Events == 0 {
			return nil, fmt.Errorf("the process runs .NET %s: %w", p.Found.Version, link.ErrNoWaits)
		}
	}
	return link.Attach(e.ctx, p, want)
}

// launch has the agent loaded by a command before the command is started.
func (e *eventSampler) launch(cmd *exec.Cmd) (err error) {
	e.launcher, err = link.Launch(cmd, e.r.o.request(e.r.opts.MaxPause))
	return err
}

// serve begins to answer the agents of the command, with process id pid, and of its children.
func (e *eventSampler) serve(pid int) {
	e.launcher.Serve(func(p int) bool { return p == pid || e.r.o.Subprocesses })
}

// close detaches all agents, also agents that are just being loaded.
func (e *eventSampler) close() {
	e.cancel()
	go func() {
		e.arriving.Wait()
		close(e.arrivals)
	}()
	for m := range e.arrivals {
		if m.Err == nil {
			m.Link.Detach()
		}
	}
	if e.launcher != nil {
		e.launcher.Close()
	}
	e.until = e.r.now
	e.stop()
}
