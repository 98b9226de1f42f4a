// Package diagnostics sends commands to a .NET runtime over its diagnostics socket.
//
// Every runtime listens on a Unix socket in its temporary directory, unless
// DOTNET_EnableDiagnostics=0 forbids it. A command is one message, answered by
// one message: a header of 20 bytes (magic, size, command set, command, two
// reserved bytes) and a payload. Sources (dotnet/runtime):
// src/native/eventpipe/ds-ipc.c and ds-protocol.h, ds-profiler-protocol.c;
// dotnet/diagnostics: documentation/design-docs/ipc-protocol.md.
package diagnostics

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf16"

	"clrsnap/internal/procfs"
)

var magic = [14]byte{'D', 'O', 'T', 'N', 'E', 'T', '_', 'I', 'P', 'C', '_', 'V', '1'}

type header struct {
	Magic    [14]byte
	Size     uint16 // of header and payload, in bytes
	Set      uint8
	Command  uint8
	Reserved uint16
}

const headerSize = 20

// Command sets and commands.
const (
	setProfiler   = 0x03
	commandAttach = 0x01
	setServer     = 0xff
	serverOK      = 0x00
	serverError   = 0xff
	maxMessage    = 1<<16 - 1
	attachTimeout = 10 * time.Second
)

// A ServerError is the runtime's refusal of a command.
type ServerError struct {
	HRESULT uint32
}

func (e *ServerError) Error() string {
	if s, ok := refusals[e.HRESULT]; ok {
		return fmt.Sprintf("the runtime refused: %s (0x%08x)", s, e.HRESULT)
	}
	return fmt.Sprintf("the runtime refused: HRESULT 0x%08x", e.HRESULT)
}

// refusals are the common errors of attaching a profiler (corerror.h, and for the last error
// winerror.h).
var refusals = map[uint32]string{
	0x80131384: "bad encoding of the request",
	0x80131385: "unknown command",
	0x8013136a: "another profiler is active in the process",
	0x80131375: "the profiler cancelled its activation",
	0x80131388: "a suspension of the runtime is in progress",
	0x8007007e: "the profiler's library cannot be loaded",
}

// A GUID in the order of its encoding.
type GUID struct {
	A    uint32
	B, C uint16
	D    [8]byte
}

func (g GUID) String() string {
	return fmt.Sprintf("{%08X-%04X-%04X-%X-%X}", g.A, g.B, g.C, g.D[:2], g.D[2:])
}

// A Profiler is the profiler to load.
type Profiler struct {
	CLSID   GUID
	Library string // the library's path, as the target sees the path
	Data    []byte // data for the profiler's initialisation
}

// Attach makes the runtime of a process load a profiler, and returns when the profiler is active.
// Without a deadline in ctx the runtime is given attachTimeout.
func Attach(ctx context.Context, of procfs.Dir, p Profiler) error {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	var b bytes.Buffer
	put := func(v any) { binary.Write(&b, binary.LittleEndian, v) } // a Buffer takes everything
	put(uint32(max(1, time.Until(deadline).Milliseconds())))
	put(p.CLSID)
	name := append(utf16.Encode([]rune(p.Library)), 0)
	put(uint32(len(name)))
	put(name)
	put(uint32(len(p.Data)))
	put(p.Data)
	if _, err := command(ctx, of, setProfiler, commandAttach, b.Bytes()); err != nil {
		return fmt.Errorf("cannot attach a profiler to process %d: %w", of.PID(), err)
	}
	return nil
}

// command sends one command and returns the payload of the answer. If the end of ctx interrupts
// the command, the error is the cause of that end.
func command(ctx context.Context, of procfs.Dir, set, cmd uint8, payload []byte) ([]byte, error) {
	if len(payload) > maxMessage-headerSize {
		return nil, fmt.Errorf("the request has %d bytes, which is too long for the protocol", len(payload))
	}
	var b bytes.Buffer
	h := header{Magic: magic, Size: uint16(headerSize + len(payload)), Set: set, Command: cmd}
	binary.Write(&b, binary.LittleEndian, h)
	b.Write(payload)
	reply, err := exchange(ctx, of, b.Bytes())
	if cause := context.Cause(ctx); cause != nil && interrupted(err) {
		return nil, fmt.Errorf("no answer: %w", cause)
	}
	return reply, err
}

// interrupted reports whether err is the error of connecting, writing or reading after the end of
// the context.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, os.ErrDeadlineExceeded)
}

// exchange sends a message and returns the payload of the answer.
func exchange(ctx context.Context, of procfs.Dir, message []byte) ([]byte, error) {
	c, err := dial(ctx, of)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// The end of ctx ends reading and writing.
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.Write(message); err != nil {
		return nil, err
	}
	return answer(c)
}

// answer reads the runtime's answer.
func answer(r io.Reader) ([]byte, error) {
	var h header
	if err := binary.Read(r, binary.LittleEndian, &h); err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	if h.Magic != magic || h.Set != setServer || int(h.Size) < headerSize {
		return nil, errors.New("the answer is not one of a .NET runtime")
	}
	payload := make([]byte, int(h.Size)-headerSize)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, fmt.Errorf("the answer is cut off: %w", err)
	}
	if len(payload) < 4 {
		return nil, fmt.Errorf("the answer is too short: its payload has %d bytes", len(payload))
	}
	// Both kinds of answer to these commands begin with an HRESULT.
	if hr := binary.LittleEndian.Uint32(payload); h.Command != serverOK || int32(hr) < 0 {
		return nil, &ServerError{HRESULT: hr}
	}
	return payload, nil
}
