package agent

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestNextUntil: a wait for an agent's answer, for example about a garbage collection, ends when
// its context ends.
func TestNextUntil(t *testing.T) {
	c := &Conn{messages: make(chan message, 1), done: make(chan struct{})}
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(interrupted) })
	if _, err := c.nextUntil(ctx); !errors.Is(err, interrupted) {
		t.Errorf("%v", err)
	}
	if _, err := c.next(time.Millisecond); err == nil || err.Error() != "no answer within 1ms" {
		t.Errorf("%v", err)
	}
	c.messages <- message{kind: msgCollected}
	if m, err := c.next(time.Minute); err != nil || m.kind != msgCollected {
		t.Errorf("%v, %v", m, err)
	}
}
