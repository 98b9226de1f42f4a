package session

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap/internal/arch"
	"clrsnap/internal/descriptors"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// ioCalls are the system calls that wait for input or output, with a verb for each. The first
// argument is a descriptor, except for the calls in ioSets.
var ioCalls = map[string]string{
	"read": "read", "readv": "read", "pread64": "read", "write": "write", "writev": "write", "pwrite64": "write",
	"recvfrom": "recv", "recvmsg": "recv", "sendto": "send", "sendmsg": "send", "accept": "accept",
	"accept4": "accept", "connect": "connect", "fsync": "fsync", "flock": "flock",
	"poll": "poll", "ppoll": "poll", "select": "select", "pselect6": "select", "open": "open", "openat": "open",
	"epoll_wait": "poll", "epoll_pwait": "poll", "epoll_pwait2": "poll", "io_uring_enter": "wait for",
}

// ioSets are the calls with a first argument that is no descriptor.
var ioSets = map[string]bool{
	"poll": true, "ppoll": true, "select": true, "pselect6": true, "open": true, "openat": true,
}

// ioWait explains a wait in a system call for input or output; nil: the thread is in no call of
// ioCalls.
func (s *Suspension) ioWait(frames []snapshot.Frame) *snapshot.Wait {
	c := s.Capture
	name := Syscalls[c.SyscallNr]
	verb := ioCalls[name]
	if verb == "" {
		return nil
	}
	w := &snapshot.Wait{Kind: snapshot.WaitIO, Target: verb, Certain: true}
	if s.Process.RunningProcess() == nil || c.SyscallArgs == [6]uint64{} {
		return w // a dump does not keep the targets of descriptors
	}
	switch {
	case name == "open" || name == "openat":
		w.Target = strings.TrimSpace(verb + " " + s.opened(name))
	case name == "poll" || name == "ppoll":
		w.Target = strings.TrimSpace(verb + " " + strings.Join(s.polled(), ", "))
	case !ioSets[name]:
		w.Target = s.Process.DescribeIO(verb, int32(c.SyscallArgs[0]))
	}
	if r := resolver(frames); r != "" {
		w.Target = r + ": " + w.Target
	}
	w.Certain = s.inSameCall()
	return w
}

// resolver returns the function of the C library that looks up names of hosts, if the thread waits
// in the function: the library asks name servers in the same thread.
func resolver(frames []snapshot.Frame) string {
	for i := range frames {
		switch f := &frames[i]; {
		case f.Kind == snapshot.Managed:
			return ""
		case f.Method == "getaddrinfo" || f.Method == "getnameinfo" || f.Method == "gethostbyname_r":
			return f.Method
		}
	}
	return ""
}

// restartSyscall continues a call that was interrupted, by a capture for example
// (restart_syscall(2)).
const restartSyscall = 219

// inSameCall reports whether the thread is in the system call of the capture, now that the
// descriptors have been read. If the thread has run since, the descriptors can be other files by
// now. A thread that was stopped for the capture goes on with the call afterwards.
func (s *Suspension) inSameCall() bool {
	c, live := s.Capture, s.Process.Live
	if live == nil {
		return true // all threads stand still
	}
	if !c.Busy() {
		return live.Holds(s.Thread.OSThreadID, c.Proof)
	}
	sp, _ := c.Context.Reg(s.Process.Arch.SP)
	now, blocked := live.Call(s.Thread.OSThreadID)
	for range maxAttempts {
		if blocked {
			break
		}
		time.Sleep(200 * time.Microsecond) // the thread has only just been released
		now, blocked = live.Call(s.Thread.OSThreadID)
	}
	return blocked && (now.Nr == c.SyscallNr || now.Nr == restartSyscall) && now.Args == c.SyscallArgs &&
		now.SP == sp
}

// opened returns the path of the file that a thread opens; "": unreadable. The thread waits for the
// other end of a FIFO, or for a file system.
func (s *Suspension) opened(call string) string {
	at := s.Capture.SyscallArgs[0]
	if call == "openat" {
		at = s.Capture.SyscallArgs[1]
	}
	path, err := target.NewReader(s.Process.from).CString(arch.Addr(at), unix.PathMax)
	if err != nil {
		return ""
	}
	return path
}

// maxPolled bounds the named descriptors of a poll.
const maxPolled = 8

// polled describes the descriptors that a thread polls.
func (s *Suspension) polled() (out []string) {
	const size = 8 // of a struct pollfd: descriptor, events asked for, events
	at, n := arch.Addr(s.Capture.SyscallArgs[0]), s.Capture.SyscallArgs[1]
	b, err := target.NewReader(s.Process.from).Bytes(at, int(min(n, maxPolled))*size)
	if err != nil {
		return nil
	}
	for ; len(b) > 0; b = b[size:] {
		if fd := int32(binary.LittleEndian.Uint32(b)); fd >= 0 {
			out = append(out, s.Process.Descriptor(fd))
		}
	}
	if n > maxPolled {
		out = append(out, fmt.Sprintf("%d more", n-maxPolled))
	}
	return out
}

// DescribeIO describes an operation on a descriptor: "read /var/log/orders.log". A dump does not keep the targets of
// descriptors.
func (p *Process) DescribeIO(verb string, fd int32) string {
	if fd < 0 || p.RunningProcess() == nil {
		return verb
	}
	return verb + " " + p.Descriptor(fd)
}

// Descriptor describes the target of a descriptor (descriptors.Reader.Of), with the pipes and sockets as of the first
// call in this snapshot.
func (p *Process) Descriptor(fd int32) string {
	if p.refs.descriptors == nil {
		p.refs.descriptors = descriptors.New(p.RunningProcess().Dir(), p.from.PID())
	}
	return p.refs.descriptors.Of(fd)
}
