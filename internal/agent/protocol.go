package agent

import (
	"encoding/binary"
	"fmt"
	"time"
)

// kind is the type of a message (agent/protocol.h, enum message).
type kind uint32

const (
	msgHello     kind = 1
	msgWalked    kind = 2
	msgResumed   kind = 3
	msgDetached  kind = 4
	msgBegun     kind = 5
	msgCollected kind = 6
	msgBegin     kind = 0x100
	msgWalk      kind = 0x101
	msgResume    kind = 0x102
	msgDetach    kind = 0x103
	msgFree      kind = 0x104
	msgCollect   kind = 0x105
)

type header struct {
	Type   kind
	Length uint32
}

// maxPayload bounds a message from an agent, in bytes.
const maxPayload = 64 << 20

// Hello is the agent's first message.
type Hello struct {
	Version     uint32
	PID         uint32 // in the target's own PID namespace
	Attached    uint32 // 1: attached; 0: loaded at the program's start
	HoldLimitMS uint32 // longest permitted suspension
}

// A Walk is the result of the CLR's DoStackSnapshot for all threads at one moment.
type Walk struct {
	Result            uint32        // HRESULT of SuspendRuntime
	Truncated         bool          // the agent's buffers were too small for all frames
	Suspending, Taken time.Duration // Suspending is 0 if the runtime was suspended already
	Threads           []Thread
}

// A Thread is one thread, and the calls of StackSnapshotCallback, leaf first.
type Thread struct {
	ID          uint64 // ThreadID
	OSID        uint32 // in the target's own PID namespace
	Result      uint32 // HRESULT of DoStackSnapshot
	ContextSize uint32 // of the register contexts, in bytes
	Frames      []Frame
}

// A Frame is one call of StackSnapshotCallback.
type Frame struct {
	Function                     uint64 // FunctionID; 0: a run of unmanaged frames
	IP                           uint64
	ContextIP, SP                uint64 // like the following, from the register context
	RBP, RBX, R12, R13, R14, R15 uint64
}

type walkReply struct {
	Result, Threads, Frames, Full uint32
	SuspendNS, WalkNS             uint64
}

type threadRecord struct {
	Thread              uint64
	OSID, Result        uint32
	Frames, ContextSize uint32
}

func parseWalk(p []byte) (*Walk, error) {
	var r walkReply
	n, err := binary.Decode(p, binary.LittleEndian, &r)
	if err != nil {
		return nil, fmt.Errorf("a walk of %d bytes: %w", len(p), err)
	}
	p = p[n:]
	want := uint64(r.Threads)*uint64(binary.Size(threadRecord{})) + uint64(r.Frames)*uint64(binary.Size(Frame{}))
	if uint64(len(p)) != want {
		return nil, fmt.Errorf("a walk of %d threads and %d frames has %d bytes, expected %d",
			r.Threads, r.Frames, len(p), want)
	}
	threads, frames := make([]threadRecord, r.Threads), make([]Frame, r.Frames)
	n, err = binary.Decode(p, binary.LittleEndian, threads)
	if err == nil {
		_, err = binary.Decode(p[n:], binary.LittleEndian, frames)
	}
	if err != nil {
		return nil, err
	}
	w := &Walk{
		Result: r.Result, Truncated: r.Full != 0,
		Suspending: time.Duration(r.SuspendNS), Taken: time.Duration(r.WalkNS),
	}
	for _, t := range threads {
		if uint64(t.Frames) > uint64(len(frames)) {
			return nil, fmt.Errorf("thread %d has %d frames, and only %d are there", t.OSID, t.Frames, len(frames))
		}
		w.Threads = append(w.Threads, Thread{
			ID: t.Thread, OSID: t.OSID, Result: t.Result, ContextSize: t.ContextSize,
			Frames: frames[:t.Frames:t.Frames],
		})
		frames = frames[t.Frames:]
	}
	return w, nil
}
