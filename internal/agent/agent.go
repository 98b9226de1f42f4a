// Package agent is the reader's side of the in-process agent: a small C library that CoreCLR
// loads as a profiler. The agent reports events of the runtime, and makes the runtime walk its
// own stacks. The folder agent at the root of the repository has the library, and its README the
// protocol.
//
// A reader listens first. Then the agent is loaded with a starting program (Environment) or
// attached to a running program (Listener.Attach), connects, and sends its hello. Conn.Begin
// requests events; Conn.Drain returns the events from then on. When the reader hangs up, or dies,
// the agent resumes the runtime if it has suspended the runtime, and detaches itself.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"clrsnap/internal/diagnostics"
	"clrsnap/internal/procfs"
)

// CLSID is the class that the library implements (agent/entry.c).
var CLSID = diagnostics.GUID{A: 0x5d0c6a1e, B: 0x94b7, C: 0x4c0e,
	D: [8]byte{0x8b, 0x62, 0x7a, 0x53, 0xf1, 0xc9, 0xe2, 0xd4}}

// Version is the protocol's (agent/protocol.h).
const Version = 9

const attachTimeout = 10 * time.Second

// A Listener waits for agents. It is for tests of the protocol: package inject brings the agent
// into programs.
type Listener struct {
	l    *net.UnixListener
	path string
}

// Listen makes a socket in dir, which must have the same name for the target. Other users should
// not be able to write to dir.
func Listen(dir string) (*Listener, error) {
	path := filepath.Join(dir, "agent.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &Listener{l, path}, nil
}

// Close stops waiting.
func (l *Listener) Close() error { return l.l.Close() }

// Environment returns the variables with which a program loads the agent.
func (l *Listener) Environment(library string) []string { return Environment(library, l.path) }

// Environment returns the variables that make a program load the agent from library, and make the
// agent connect to socket.
func Environment(library, socket string) []string {
	return []string{
		"CORECLR_ENABLE_PROFILING=1",
		"CORECLR_PROFILER=" + CLSID.String(),
		"CORECLR_PROFILER_PATH=" + library,
		"CLRSNAP_AGENT_SOCKET=" + socket,
	}
}

// Accept waits for an agent to connect and to say hello.
func (l *Listener) Accept(timeout time.Duration) (*Conn, error) {
	l.l.SetDeadline(time.Now().Add(timeout))
	nc, err := l.l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("the agent did not connect: %w", err)
	}
	return NewConn(nc)
}

// Attach loads the agent into a running process and waits for its hello. The runtime answers the
// load request only after Begin; Begin returns an error in the answer.
func (l *Listener) Attach(pid int, library string) (*Conn, error) {
	of, err := procfs.Open(pid)
	if err != nil {
		return nil, err
	}
	type accepted struct {
		c   *Conn
		err error
	}
	answer, hello := make(chan error, 1), make(chan accepted, 1)
	go func() {
		defer of.Close()
		ctx, cancel := context.WithTimeout(context.Background(), attachTimeout)
		defer cancel()
		p := diagnostics.Profiler{CLSID: CLSID, Library: library, Data: []byte(l.path)}
		answer <- diagnostics.Attach(ctx, of, p)
	}()
	go func() {
		c, err := l.Accept(attachTimeout)
		hello <- accepted{c, err}
	}()
	select {
	case a := <-hello:
		if a.err != nil {
			return nil, a.err
		}
		a.c.attached = answer
		return a.c, nil
	case err := <-answer:
		l.l.SetDeadline(time.Now()) // no agent will connect
		if a := <-hello; a.c != nil {
			a.c.Close()
		}
		if err == nil {
			err = fmt.Errorf("process %d has loaded %s, but no agent has connected", pid, library)
		}
		return nil, err
	}
}
