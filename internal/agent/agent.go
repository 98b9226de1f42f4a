// Package agent is the reader's side of the in-process agent: a small C library
// that CoreCLR loads as a profiler, and that has the runtime walk its own stacks.
// The folder agent at the root of the repository has the library, and its README
// the conversation.
//
// A reader listens first. Then the agent is loaded with a starting program
// (Environment) or attached to a running one (Listener.Attach), connects, and
// says hello. When the reader hangs up, or dies, the agent resumes the runtime if
// it has suspended it, and detaches itself.
package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"clrsnap/internal/diagnostics"
)

// CLSID is the class that the library implements (agent/entry.c).
var CLSID = diagnostics.GUID{A: 0x5d0c6a1e, B: 0x94b7, C: 0x4c0e, D: [8]byte{0x8b, 0x62, 0x7a, 0x53, 0xf1, 0xc9, 0xe2, 0xd4}}

// Version is the protocol's (agent/protocol.h).
const Version = 1

const (
	attachTimeout = 10 * time.Second
	replyTimeout  = 20 * time.Second
)

// A Listener waits for one agent.
type Listener struct {
	l    *net.UnixListener
	path string
}

// Listen makes a socket in dir, which the target must see under the same name,
// and which others had better not be able to write to.
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

// Environment is what to start a program with, so that it loads the agent.
func (l *Listener) Environment(library string) []string {
	return []string{
		"CORECLR_ENABLE_PROFILING=1",
		"CORECLR_PROFILER=" + CLSID.String(),
		"CORECLR_PROFILER_PATH=" + library,
		"CLRSNAP_AGENT_SOCKET=" + l.path,
	}
}

// Attach loads the agent into a running process and waits for it.
func (l *Listener) Attach(pid int, library string) (*Conn, error) {
	if err := diagnostics.AttachProfiler(pid, CLSID, library, []byte(l.path), attachTimeout); err != nil {
		return nil, err
	}
	return l.Accept(attachTimeout)
}

// Accept waits for the agent to connect and to say hello.
func (l *Listener) Accept(timeout time.Duration) (*Conn, error) {
	deadline := time.Now().Add(timeout)
	l.l.SetDeadline(deadline)
	nc, err := l.l.Accept()
	if err != nil {
		return nil, fmt.Errorf("the agent did not connect: %w", err)
	}
	c := &Conn{c: nc}
	nc.SetDeadline(deadline)
	if err := c.receive(msgHello, &c.Hello); err != nil {
		nc.Close()
		return nil, fmt.Errorf("the agent did not say hello: %w", err)
	}
	if c.Hello.Version != Version {
		nc.Close()
		return nil, fmt.Errorf("the agent speaks version %d of the protocol, this program %d", c.Hello.Version, Version)
	}
	return c, nil
}

// A Conn is a connection to an agent. It is not safe for concurrent use.
type Conn struct {
	Hello Hello
	c     net.Conn
}

// Walk suspends the target's runtime and has it walk all its threads. If
// Walk.Result is 0 the runtime stays suspended until Resume, for hold at most.
// Any other result is "not this time": the runtime runs, and nothing was walked.
// While the runtime is suspended, Walk walks once more, and hold does not count.
func (c *Conn) Walk(hold time.Duration) (*Walk, error) {
	req := struct{ HoldMS uint32 }{uint32(hold.Milliseconds())}
	if err := c.send(msgWalk, &req); err != nil {
		return nil, err
	}
	payload, err := c.payload(msgWalked)
	if err != nil {
		return nil, err
	}
	return parseWalk(payload)
}

// ErrExpired: the agent had to resume the runtime by itself, because the reader
// kept it suspended for longer than it had asked for.
var ErrExpired = errors.New("the suspension ran out of time")

// Resume lets the runtime go on.
func (c *Conn) Resume() error {
	if err := c.send(msgResume, nil); err != nil {
		return err
	}
	var reply struct{ Result, Expired uint32 }
	if err := c.receive(msgResumed, &reply); err != nil {
		return err
	}
	switch {
	case reply.Expired != 0:
		return ErrExpired
	case reply.Result != 0:
		return fmt.Errorf("the runtime cannot be resumed: HRESULT 0x%08x", reply.Result)
	}
	return nil
}

// Detach ends the connection and waits until the agent has left the runtime, so
// that it, or another profiler, can be attached again.
func (c *Conn) Detach() error {
	defer c.c.Close()
	if err := c.send(msgDetach, nil); err != nil {
		return err
	}
	if _, err := c.payload(msgDetached); err != nil {
		return fmt.Errorf("the agent did not detach: %w", err)
	}
	return nil
}

// Close hangs up. The agent leaves, a little later.
func (c *Conn) Close() error { return c.c.Close() }

func (c *Conn) send(kind message, body any) error {
	c.c.SetDeadline(time.Now().Add(replyTimeout))
	h := header{Type: kind}
	if body != nil {
		h.Length = uint32(binary.Size(body))
	}
	b, err := binary.Append(nil, binary.LittleEndian, h)
	if err == nil && body != nil {
		b, err = binary.Append(b, binary.LittleEndian, body)
	}
	if err != nil {
		return err
	}
	_, err = c.c.Write(b)
	return err
}

// payload reads a message, which must be of the kind that is expected.
func (c *Conn) payload(want message) ([]byte, error) {
	var h header
	if err := binary.Read(c.c, binary.LittleEndian, &h); err != nil {
		return nil, err
	}
	if h.Type != want || h.Length > maxPayload {
		return nil, fmt.Errorf("got message %d of %d bytes, expected message %d", h.Type, h.Length, want)
	}
	p := make([]byte, h.Length)
	_, err := io.ReadFull(c.c, p)
	return p, err
}

func (c *Conn) receive(want message, body any) error {
	p, err := c.payload(want)
	if err != nil {
		return err
	}
	if len(p) != binary.Size(body) {
		return fmt.Errorf("message %d has %d bytes, expected %d", want, len(p), binary.Size(body))
	}
	_, err = binary.Decode(p, binary.LittleEndian, body)
	return err
}
