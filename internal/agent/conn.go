package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	helloTimeout = 5 * time.Second
	replyTimeout = 20 * time.Second
)

// A Conn is a connection to an agent. Begin must be called first, within 2 seconds, or the agent
// detaches itself. One goroutine may call Drain while another goroutine calls all other methods;
// any goroutine may call Done, Stats, Release and SetWalkedThread before Close.
type Conn struct {
	Hello Hello

	c        *net.UnixConn
	ring     *ring         // of the subscription; nil without a subscription, and after Close
	messages chan message  // from the agent
	done     chan struct{} // closed when no more messages will come
	broken   error         // why no more messages will come; valid after done
	closing  chan struct{} // closed by Close
	close    func() error  // of c; once
	attached chan error    // the runtime's answer to the load request; nil without a request
}

type message struct {
	kind    kind
	payload []byte
}

// NewConn makes a Conn of the connection of an agent, and waits for its hello, for 5 seconds at
// most. It takes over the connection, even on an error.
func NewConn(nc *net.UnixConn) (*Conn, error) {
	c := &Conn{
		c:        nc,
		messages: make(chan message, 1),
		done:     make(chan struct{}),
		closing:  make(chan struct{}),
	}
	c.close = sync.OnceValue(func() error {
		close(c.closing)
		return nc.Close()
	})
	go c.read()
	if err := c.receive(msgHello, &c.Hello, helloTimeout); err != nil {
		c.Close()
		return nil, fmt.Errorf("the agent did not say hello: %w", err)
	}
	if c.Hello.Version != Version {
		c.Close()
		return nil, fmt.Errorf("the agent speaks version %d of the protocol, this program %d: load the agent of this "+
			"program", c.Hello.Version, Version)
	}
	return c, nil
}

// PID is the target's id in its own PID namespace.
func (c *Conn) PID() int { return int(c.Hello.PID) }

// Done is closed when the agent was detached, or its process has ended. The ring can still be
// read.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close hangs up. The agent detaches itself soon after. The ring is no longer valid.
func (c *Conn) Close() error {
	err := c.close()
	<-c.done
	if c.ring != nil {
		err = errors.Join(err, c.ring.close())
		c.ring = nil
	}
	return err
}

// ErrExpired: the agent had to resume the runtime by itself, because the reader kept the runtime
// suspended for longer than requested.
var ErrExpired = errors.New("the suspension ran out of time")

// Walk suspends the target's runtime and makes the runtime walk all its threads. If Walk.Result
// is 0 the runtime stays suspended until Resume, for hold at most. With any other result the
// runtime runs, and nothing was walked. If the runtime is suspended already, Walk walks once
// more, and hold has no effect. It is for tests: they compare walks from outside with Walk's
// result.
func (c *Conn) Walk(hold time.Duration) (*Walk, error) {
	req := struct{ HoldMS uint32 }{uint32(hold.Milliseconds())}
	if err := c.send(msgWalk, &req, -1); err != nil {
		return nil, err
	}
	payload, err := c.payload(msgWalked, replyTimeout)
	if err != nil {
		return nil, err
	}
	return parseWalk(payload)
}

// Resume lets the runtime go on after Walk.
func (c *Conn) Resume() error {
	if err := c.send(msgResume, nil, -1); err != nil {
		return err
	}
	var reply struct{ Result, Expired uint32 }
	if err := c.receive(msgResumed, &reply, replyTimeout); err != nil {
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

// Detach stops the agent, and waits until the runtime has detached the agent. Then the agent, or
// another profiler, can be attached again. After a subscription with EveryObject the agent stays
// loaded, but idle. The ring can still be read, until Close.
func (c *Conn) Detach() error {
	if err := c.send(msgDetach, nil, -1); err != nil {
		return err
	}
	if _, err := c.payload(msgDetached, replyTimeout); err != nil {
		return fmt.Errorf("the agent did not detach: %w", err)
	}
	return nil
}

// send sends a message, and the file descriptor fd along with the message, unless fd is -1.
func (c *Conn) send(k kind, body any, fd int) error {
	h := header{Type: k}
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
	c.c.SetWriteDeadline(time.Now().Add(replyTimeout))
	_, _, err = c.c.WriteMsgUnix(b, rights(fd), nil)
	return err
}

// rights is the control message that passes fd on.
func rights(fd int) []byte {
	if fd < 0 {
		return nil
	}
	return unix.UnixRights(fd)
}

// read takes messages from the agent until either side hangs up.
func (c *Conn) read() {
	defer close(c.done)
	for {
		m, err := readMessage(c.c)
		if err != nil {
			c.broken = err
			return
		}
		select {
		case c.messages <- m:
		case <-c.closing:
			c.broken = net.ErrClosed
			return
		}
	}
}

func readMessage(r io.Reader) (message, error) {
	var h header
	if err := binary.Read(r, binary.LittleEndian, &h); err != nil {
		return message{}, err
	}
	if h.Length > maxPayload {
		return message{}, fmt.Errorf("got message %d of %d bytes", h.Type, h.Length)
	}
	m := message{h.Type, make([]byte, h.Length)}
	_, err := io.ReadFull(r, m.payload)
	return m, err
}

// next returns the next message, even from an agent that was detached afterwards.
func (c *Conn) next(timeout time.Duration) (message, error) {
	none := fmt.Errorf("no answer within %v", timeout)
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, none)
	defer cancel()
	return c.nextUntil(ctx)
}

// nextUntil is next; the error is the cause of the end of ctx.
func (c *Conn) nextUntil(ctx context.Context) (message, error) {
	select {
	case m := <-c.messages:
		return m, nil
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	case <-c.done:
	}
	select {
	case m := <-c.messages:
		return m, nil
	default:
		return message{}, c.broken
	}
}

// payload takes a message, which must be of the kind want.
func (c *Conn) payload(want kind, timeout time.Duration) ([]byte, error) {
	m, err := c.next(timeout)
	if err == nil && m.kind == msgCollected && want != msgCollected { // the caller of Collect has given up
		m, err = c.next(timeout)
	}
	if err != nil {
		return nil, err
	}
	return m.payload, m.is(want)
}

// is returns an error unless the message is of the kind want.
func (m *message) is(want kind) error {
	if m.kind != want {
		return fmt.Errorf("got message %d of %d bytes, expected message %d", m.kind, len(m.payload), want)
	}
	return nil
}

func (c *Conn) receive(want kind, body any, timeout time.Duration) error {
	p, err := c.payload(want, timeout)
	if err != nil {
		return err
	}
	return decode(want, p, body)
}

func decode(k kind, payload []byte, body any) error {
	if len(payload) != binary.Size(body) {
		return fmt.Errorf("message %d has %d bytes, expected %d", k, len(payload), binary.Size(body))
	}
	_, err := binary.Decode(payload, binary.LittleEndian, body)
	return err
}
