package clrsnap

import "os/exec"

// attachLater loads the agent into a child process, which may take its time.
func (e *eventSampler) attachLater(rp *recordedProcess) {
	e.arriving.Add(1)
	go func() {
		defer e.arriving.Done()
		link, err := attachAgent(e.ctx, rp.p, e.o)
		e.arrivals <- metAgent{rp.p.live.PID(), link, err}
	}()
}

// launch has the agent loaded by a command that is going to be started.
func (e *eventSampler) launch(cmd *exec.Cmd) (err error) {
	e.launcher, err = launchWithAgent(cmd, e.o, e.r.opts)
	return err
}

// serve begins to answer the agents of the command, whose process id is known now.
func (e *eventSampler) serve(pid int) {
	e.launcher.serve(func(p int) bool { return p == pid || e.r.o.Subprocesses })
}

// arrive takes notice of agents that have connected.
func (e *eventSampler) arrive() {
	var launched chan metAgent
	if e.launcher != nil {
		launched = e.launcher.met
	}
	for {
		select {
		case m, ok := <-launched:
			if !ok {
				launched = nil
				continue
			}
			e.arrived(m)
		case m := <-e.arrivals:
			e.arrived(m)
		default:
			return
		}
	}
}

func (e *eventSampler) arrived(m metAgent) {
	if m.err != nil {
		e.note("Process %d reports no events: %v.", m.pid, m.err)
		return
	}
	np := e.met(m.pid, m.link)
	if rp := e.r.recorded(m.pid); rp != nil && !rp.ended {
		np.rp = rp
	}
}

// opened takes notice of a process that can be read now. If its agent is not there,
// because it is a child of one that was attached to, it is loaded.
func (e *eventSampler) opened(rp *recordedProcess) {
	np := e.of[rp.p.live.PID()]
	switch {
	case np != nil:
		np.rp = rp
	case e.launcher == nil:
		e.attachLater(rp)
	}
}

// close takes leave of all agents, of those that are just being loaded too.
func (e *eventSampler) close() {
	e.cancel()
	go func() {
		e.arriving.Wait()
		close(e.arrivals)
	}()
	for m := range e.arrivals {
		if m.err == nil {
			m.link.detach()
		}
	}
	if e.launcher != nil {
		e.launcher.close()
	}
	e.finish()
}
