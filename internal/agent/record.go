package agent

import (
	"encoding/binary"
	"fmt"
	"unicode/utf16"
)

// An EventType says what has happened (agent/protocol.h, enum event_type).
type EventType uint8

// The types of events, and the meaning of Record.Values.
const (
	eventPadding EventType = 0
	EventAlloc   EventType = 1 // ClassID, size in bytes, bytes represented by the tick (AllocTick only), address
	// ClassID and address of the object, or 0 (Conn.SetExceptionOffsets), flags (Exception…),
	// lengths of Name and Message.
	EventException EventType = 2
	// A handler begins: FunctionID of its method, address of the exception object or 0, and 1 if
	// the thread's last handler has thrown its exception again ("throw;"). If FunctionID is 0, a
	// filter swallows the thread's latest published exception that is not yet caught. Without a
	// stack.
	EventCaught EventType = 3
	// The lock's id, OS thread id of its owner when the wait began (0: unknown), duration in ns,
	// ClassID of the locked object (LockedClass; 0: unknown).
	EventContention     EventType = 4
	EventThreadStarting EventType = 5  // ThreadID of the thread that the current thread starts
	EventThreadCreated  EventType = 6  // ThreadID, OS thread id; no stack
	EventThreadEnded    EventType = 7  // ThreadID; no stack
	EventGCTriggered    EventType = 8  // reason
	EventGCStart        EventType = 9  // number, generation, reason, type; no stack
	EventGCEnd          EventType = 10 // number, generation; no stack
	EventSuspendBegin   EventType = 11 // reason, number of the collection, 0, events dropped before; no stack
	EventSuspendEnd     EventType = 12 // no stack
	EventRestartEnd     EventType = 13 // 0, 0, 0, events dropped before: the runtime runs again; no stack
	// Like EventException, for an object that was thrown before. First is the place of the first
	// throw, if known.
	EventRethrown EventType = 14
	// When a wait is over: duration in ns, WaitSource, ClassID of the object (LockedClass unless
	// the source is WaitOther; 0: unknown), the lock's id for WaitLock.
	EventWaited EventType = 15
	EventTypes  EventType = 16
)

var eventNames = [EventTypes]string{
	"padding", "allocation", "exception", "caught", "contention", "thread starting", "thread created", "thread ended",
	"GC triggered", "GC start", "GC end", "suspend begin", "suspend end", "restart end", "rethrown",
	"waited",
}

func (t EventType) String() string {
	if t < EventTypes {
		return eventNames[t]
	}
	return fmt.Sprintf("event type %d", uint8(t))
}

// A Record is one event.
type Record struct {
	Type      EventType
	Held      bool // the thread waits for Conn.Release
	Truncated bool // the stack has more frames than Frames
	Registers bool // Frames have registers

	Position uint64 // in the ring, in bytes since the beginning
	Time     uint64 // CLOCK_MONOTONIC, in ns
	Thread   uint64 // ThreadID; 0: not known to the runtime
	OSID     uint32 // of the thread, in the target's own PID namespace
	Result   uint32 // HRESULT of DoStackSnapshot; 0 if the stack was cut
	Values   [4]uint64
	Frames   []Frame // leaf first
	Name     string  // of an exception's type, with its namespace; the first 256 characters

	Message    string // of an exception; the first 256 UTF-16 units
	HasMessage bool   // messages were requested (Subscription.Messages); Message may be empty
	MessageCut bool   // the exception's message is longer than Message

	// A weak handle of the allocated object, with handles (Subscription.Handles).
	Handle    Handle
	HasHandle bool // handles were requested; Handle may be zero: there was no room

	Chain *Chain // the copy by rules (Conn.AddChainRule); nil: nothing was copied

	First Frame // the first throw of a rethrown exception; zero if the exception does not say
}

// Flags of an EventException, its third value.
const (
	ExceptionInner  = 1 << iota // the exception has an inner exception
	ExceptionNested             // thrown while another exception was in flight
)

// A WaitSource says what an EventWaited knows of the awaited object.
type WaitSource uint64

// The sources.
const (
	WaitOther   WaitSource = 0 // nothing, or a WaitHandle
	WaitMonitor WaitSource = 1 // a pulse of an object's monitor (Monitor.Wait)
	WaitLock    WaitSource = 2 // the object of a lock
)

// LockedClass returns the ClassID of a locked object, from the value in an EventContention, an
// EventWaited or a Wait. monitor: a thread waits for the object's monitor. Otherwise there are
// two cases. The object is a System.Threading.Lock, which can be a monitor as well. Or the object
// has moved, and the class is another object's.
func LockedClass(v uint64) (class uint64, monitor bool) {
	const noMonitor = 1 // LOCKED_NO_MONITOR
	return v &^ noMonitor, v&noMonitor == 0
}

// Offsets in bytes of struct record, and sizes.
const (
	recordType      = 4
	recordFlags     = 5
	recordFrames    = 6
	recordTime      = 8
	recordThread    = 16
	recordOSID      = 24
	recordResult    = 28
	recordValues    = 32
	recordSize      = 64
	recordAlignment = 8

	maxNameUnits    = 256 // MAX_NAME_UNITS
	maxMessageUnits = 256 // MAX_MESSAGE_UNITS
	noMessage       = 1<<32 - 1

	shortFrameSize = 16
	frameSize      = 80
)

// Flags of a record (enum record_flags).
const (
	flagHeld = 1 << iota
	flagCut
	flagRegisters
	flagHandle
	flagChain
)

// parseRecord reads the copy of a whole record.
func parseRecord(b []byte, position uint64) (*Record, error) {
	if len(b) < recordSize {
		return nil, fmt.Errorf("a record of %d bytes", len(b))
	}
	le := binary.LittleEndian
	flags := b[recordFlags]
	r := &Record{
		Type:      EventType(b[recordType]),
		Held:      flags&flagHeld != 0,
		Truncated: flags&flagCut != 0,
		Registers: flags&flagRegisters != 0,
		Position:  position,
		Time:      le.Uint64(b[recordTime:]),
		Thread:    le.Uint64(b[recordThread:]),
		OSID:      le.Uint32(b[recordOSID:]),
		Result:    le.Uint32(b[recordResult:]),
	}
	if r.Type >= EventTypes {
		return nil, fmt.Errorf("a record of type %d", r.Type)
	}
	for i := range r.Values {
		r.Values[i] = le.Uint64(b[recordValues+8*i:])
	}
	size, count := shortFrameSize, int(le.Uint16(b[recordFrames:]))
	if r.Registers {
		size = frameSize
	}
	var t tail
	switch {
	case r.Type == EventException || r.Type == EventRethrown:
		t = textsOf(r)
	case r.Type == EventAlloc && flags&flagHandle != 0:
		t.handle = handleSize
	}
	at := recordSize + count*size
	var err error
	if flags&flagChain != 0 {
		if t.chain, err = chainSize(b, at); err != nil {
			return nil, err
		}
	}
	if count > maxFrames || t.name > maxNameUnits || t.message > maxMessageUnits || len(b) != align(at+t.size()) {
		return nil, fmt.Errorf("a record of %d bytes with %d frames, and texts of %d and %d units",
			len(b), count, t.name, t.message)
	}
	r.Frames = make([]Frame, count)
	for i := range r.Frames {
		r.Frames[i] = parseFrame(b[recordSize+i*size:][:size])
	}
	if t.chain > 0 {
		if r.Chain, err = parseChain(b[at:][:t.chain], count); err != nil {
			return nil, err
		}
		at += t.chain
	}
	if t.handle > 0 {
		r.HasHandle, r.Handle = true, parseHandle(b[at:])
	}
	if t.first > 0 {
		r.First = parseFrame(b[at:][:t.first])
		at += t.first
	}
	r.Name = parseText(b[at:][:2*t.name])
	r.Message = parseText(b[at+2*t.name:][:2*t.message])
	return r, nil
}

// tail has the sizes of the parts after the frames of a record.
type tail struct {
	chain         int // bytes of Record.Chain
	handle        int // bytes of Record.Handle
	first         int // bytes of Record.First
	name, message int // UTF-16 units
}

func (t *tail) size() int { return t.chain + t.handle + t.first + 2*(t.name+t.message) }

// textsOf returns the sizes in an exception's record.
func textsOf(r *Record) tail {
	lengths := r.Values[3]
	t := tail{name: int(lengths & 0xffff), message: int(lengths >> 16 & 0xffff)}
	if r.Type == EventRethrown {
		t.first = shortFrameSize
	}
	whole := lengths >> 32
	r.HasMessage, r.MessageCut = whole != noMessage, whole != noMessage && whole > uint64(t.message)
	return t
}

func align(size int) int { return (size + recordAlignment - 1) &^ (recordAlignment - 1) }

func parseText(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}

func parseFrame(b []byte) Frame {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	f := Frame{Function: word(0), IP: word(1)}
	if len(b) == frameSize {
		f.ContextIP, f.SP, f.RBP, f.RBX = word(2), word(3), word(4), word(5)
		f.R12, f.R13, f.R14, f.R15 = word(6), word(7), word(8), word(9)
	}
	return f
}
