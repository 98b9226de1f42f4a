package agent

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// MaxHandles bounds Subscription.Handles, which is a multiple of HandlesUnit (agent/protocol.h).
const (
	MaxHandles  = 1 << 16
	HandlesUnit = 64
	maxFreed    = 1024 // MAX_FREED
)

// Handle is a weak handle of an object, made by the agent.
type Handle struct {
	// Address is the address of a word in the target. The word is the address of the object,
	// which a garbage collection may change, and 0 once the object is dead. 0: there is no
	// handle.
	Address uint64
	Slot    uint32 // for Conn.Free
}

const handleSize = 16 // struct handle_record

func parseHandle(b []byte) Handle {
	return Handle{Address: binary.LittleEndian.Uint64(b), Slot: uint32(binary.LittleEndian.Uint64(b[8:]))}
}

// Free makes the agent destroy handles. Their words are meaningless from now on. The end of the
// connection destroys the remaining handles.
func (c *Conn) Free(slots []uint32) error {
	for len(slots) > 0 {
		n := min(len(slots), maxFreed)
		if err := c.send(msgFree, slots[:n], -1); err != nil {
			return err
		}
		slots = slots[n:]
	}
	return nil
}

// Collect makes the runtime do a full, blocking garbage collection, and returns the duration. At
// the end of ctx Collect stops waiting, but the collection goes on, and the error has the cause.
func (c *Conn) Collect(ctx context.Context) (time.Duration, error) {
	if err := c.send(msgCollect, nil, -1); err != nil {
		return 0, err
	}
	var reply struct {
		Result, _ uint32
		TookNS    uint64
	}
	m, err := c.nextUntil(ctx)
	if err == nil {
		err = m.is(msgCollected)
	}
	if err == nil {
		err = decode(msgCollected, m.payload, &reply)
	}
	if err != nil {
		return 0, fmt.Errorf("the garbage collection has not ended: %w", err)
	}
	if reply.Result != 0 {
		return 0, fmt.Errorf("the runtime refuses a garbage collection: HRESULT 0x%08x", reply.Result)
	}
	return time.Duration(reply.TookNS), nil
}
