package core

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"clrsnap/internal/arch"
)

// Signal is a signal that ended a process.
type Signal struct {
	Number     int
	Name       string // "SIGSEGV"
	Reason     string // the meaning of its code: "address not mapped"; empty: not known
	Address    arch.Addr
	HasAddress bool
}

// Signals of Linux on every architecture that .NET runs on.
const (
	sigILL  = 4
	sigTRAP = 5
	sigBUS  = 7
	sigFPE  = 8
	sigSEGV = 11
	sigSTOP = 19
)

var signalNames = [...]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
	9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
	16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT", 19: "SIGSTOP", 20: "SIGTSTP", 21: "SIGTTIN", 22: "SIGTTOU",
	23: "SIGURG", 24: "SIGXCPU", 25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH", 29: "SIGIO",
	30: "SIGPWR", 31: "SIGSYS",
}

// faults are the meanings of si_code above zero (Linux,
// include/uapi/asm-generic/siginfo.h).
var faults = map[int][]string{
	sigSEGV: {1: "address not mapped", 2: "access not permitted", 3: "bounds check failed", 4: "protection key"},
	sigBUS: {1: "unaligned address", 2: "no memory behind the address", 3: "hardware error", 4: "memory failed",
		5: "memory failed"},
	sigFPE: {1: "integer division by zero", 2: "integer overflow", 3: "division by zero", 4: "overflow", 5: "underflow",
		6: "inexact result", 7: "invalid operation", 8: "subscript out of range"},
	sigILL: {1: "illegal opcode", 2: "illegal operand", 3: "illegal addressing mode", 4: "illegal trap",
		5: "privileged opcode"},
	sigTRAP: {1: "breakpoint", 2: "trace trap"},
}

// Codes of every signal.
const (
	codeUser   = 0 // kill(2)
	codeQueue  = -1
	codeTKill  = -6   // tgkill(2), as abort(3) does
	codeKernel = 0x80 // without further details: for a non-canonical address, for example
)

// addSignal reads siginfo_t, a note after the registers of the note's thread: number, errno,
// code, four bytes of padding, then an address or the sender's process id (Linux,
// include/uapi/asm-generic/siginfo.h).
func (c *Core) addSignal(n *noteReader) error {
	b, err := n.description(1 << 12)
	if err != nil || len(b) < 24 || len(c.notes.threads) == 0 {
		return err
	}
	if c.notes.signal != nil && c.notes.writer != writerKernel {
		return nil // gdb: of another thread
	}
	le := binary.LittleEndian
	number, code := int(int32(le.Uint32(b))), int(int32(le.Uint32(b[8:])))
	if s := c.newSignal(number); s != nil {
		s.explain(code, le.Uint64(b[16:]), c.notes)
		c.notes.signal, c.notes.crashed = s, c.notes.threads[len(c.notes.threads)-1].TID
	}
	return nil
}

// fallbackSignal takes the signal from the first thread of a kernel's dump, in case no note with
// more details follows.
func (c *Core) fallbackSignal(prstatus []byte, tid int) {
	if s := c.newSignal(int(binary.LittleEndian.Uint16(prstatus[prCursig:]))); s != nil {
		c.notes.signal, c.notes.crashed = s, tid
	}
}

// newSignal returns nil if the number is not a signal, or is the signal with which gdb stops a
// process on attaching.
func (c *Core) newSignal(number int) *Signal {
	if number <= 0 || number > 64 || c.notes.writer == writerGCore && (number == sigSTOP || number == sigTRAP) {
		return nil
	}
	s := &Signal{Number: number, Name: "signal " + strconv.Itoa(number)}
	if number < len(signalNames) {
		s.Name = signalNames[number]
	}
	return s
}

func (s *Signal) explain(code int, word uint64, of notes) {
	switch {
	case code == codeUser || code == codeQueue || code == codeTKill:
		sender := int(int32(uint32(word))) // the sender's process id
		switch {
		case sender == 0 && of.writer == writerCreatedump:
			// createdump does not know the sender.
		case sender == 0:
			s.Reason = "sent from outside the container, or by the kernel"
		case sender == of.process.pid:
			s.Reason = "sent by the process itself"
		default:
			s.Reason = fmt.Sprintf("sent by process %d", sender)
		}
	case code == codeKernel && s.Number == sigSEGV:
		s.Reason = "the address is not canonical, or the access is never allowed"
	case code > 0 && code != codeKernel:
		meanings, fault := faults[s.Number]
		if fault {
			s.Address, s.HasAddress = arch.Addr(word), true
		}
		if code < len(meanings) {
			s.Reason = meanings[code]
		}
	}
}
