// Package sockdiag asks the kernel for the sockets of a network namespace: TCP connections with the length of their
// silence, and the peers of Unix sockets. The package uses sock_diag(7), as ss does.
//
// Sources (Linux): include/uapi/linux/inet_diag.h (inet_diag_req_v2, inet_diag_msg), include/uapi/linux/tcp.h
// (tcp_info), net/ipv4/inet_diag.c; include/uapi/linux/unix_diag.h (unix_diag_req, unix_diag_msg), net/unix/diag.c.
package sockdiag

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Connection is a connected TCP socket, or a TCP socket that is about to be connected.
type Connection struct {
	Inode         uint64 // 0: no program has accepted the connection yet
	Local, Remote netip.AddrPort
	Connecting    bool          // the other end has not answered yet
	Sent          time.Duration // since the last byte was sent
	Received      time.Duration // since the last byte was received, or since the connection was made
	Heard         bool          // any byte was received; true where the kernel does not say (before Linux 4.1)
}

// ErrFormat: the kernel's answer differs from the documentation.
var ErrFormat = errors.New("unexpected answer of sock_diag")

// The request, and the kernel's answer.
const (
	byFamily        = 20          // SOCK_DIAG_BY_FAMILY
	info            = 2           // INET_DIAG_INFO, a kind of attribute
	stateSynSent    = 2           // TCP_SYN_SENT in include/net/tcp_states.h
	states          = 1<<1 | 1<<2 // established and syn-sent
	headerLen       = 16          // nlmsghdr
	requestLen      = 56          // inet_diag_req_v2
	messageLen      = 72          // inet_diag_msg
	lastDataSent    = 44          // in tcp_info, in ms
	lastDataRecv    = 52
	bytesReceived   = 128
	maxConnections  = 1 << 16
	receiveBuffer   = 64 << 10
	answerTimeout   = 2 // seconds
	attributeHeader = 4
)

// ConnectionsIn is Connections of another network namespace. file is a /proc/PID/ns/net. ConnectionsIn takes
// CAP_SYS_ADMIN.
func ConnectionsIn(file *os.File) (out []Connection, err error) {
	err = in(file, func() (err error) { out, err = Connections(); return err })
	return out, err
}

// in calls a function in a network namespace.
func in(file *os.File, call func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends, instead of staying in the other namespace
		if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err == nil {
			err = call()
		}
	}()
	<-done
	return err
}

// Connections returns the connections over IPv4 and IPv6 of this process's own network namespace, at most 65,536 of
// each.
func Connections() ([]Connection, error) {
	var out []Connection
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		list, err := dump(family)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

func dump(family uint8) ([]Connection, error) {
	var out []Connection
	err := ask(request(family), func(b []byte) (bool, error) {
		list, done, err := parse(b)
		out = append(out, list...)
		return done || len(out) >= maxConnections, err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ask sends a request, and passes on the parts of the answer until done.
func ask(request []byte, part func([]byte) (done bool, err error)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: answerTimeout}); err != nil {
		return err
	}
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, receiveBuffer)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if done, err := part(buf[:n]); done || err != nil {
			return err
		}
	}
}

// request asks for the connections of a family, with their tcp_info.
func request(family uint8) []byte {
	b := make([]byte, headerLen+requestLen)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], byFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	r := b[headerLen:]
	r[0], r[1], r[2] = family, unix.IPPROTO_TCP, 1<<(info-1)
	binary.NativeEndian.PutUint32(r[4:], states)
	return b
}

// parse parses a part of an answer: messages, one after the other. done: the part is the last.
func parse(b []byte) (out []Connection, done bool, err error) {
	done, err = eachMessage(b, func(b []byte) {
		if c, ok := parseMessage(b); ok {
			out = append(out, c)
		}
	})
	return out, done, err
}

// eachMessage calls a function with each message of a part of an answer.
func eachMessage(b []byte, take func([]byte)) (done bool, err error) {
	for len(b) >= headerLen {
		n := int(binary.NativeEndian.Uint32(b))
		if n < headerLen || n > len(b) {
			return false, ErrFormat
		}
		switch kind := binary.NativeEndian.Uint16(b[4:]); kind {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if n >= headerLen+4 {
				if code := -int32(binary.NativeEndian.Uint32(b[headerLen:])); code > 0 {
					return false, unix.Errno(code)
				}
			}
			return false, ErrFormat
		case byFamily:
			take(b[headerLen:n])
		}
		b = b[min(aligned(n), len(b)):]
	}
	return false, nil
}

func aligned(n int) int { return (n + 3) &^ 3 }

// parseMessage parses an inet_diag_msg and the attributes after the message.
func parseMessage(b []byte) (c Connection, ok bool) {
	if len(b) < messageLen {
		return c, false
	}
	c.Connecting = b[1] == stateSynSent
	c.Local = address(b[0], b[8:24], b[4:6])
	c.Remote = address(b[0], b[24:40], b[6:8])
	c.Inode = uint64(binary.NativeEndian.Uint32(b[68:]))
	whole := eachAttribute(b[messageLen:], func(kind uint16, value []byte) {
		if kind == info && len(value) >= lastDataRecv+4 {
			c.Sent, c.Received, ok = milliseconds(value[lastDataSent:]), milliseconds(value[lastDataRecv:]), true
			c.Heard = len(value) < bytesReceived+8 || binary.NativeEndian.Uint64(value[bytesReceived:]) != 0
		}
	})
	return c, whole && ok
}

// eachAttribute calls a function with each attribute of a message. The result is false if the attributes are malformed.
func eachAttribute(b []byte, take func(kind uint16, value []byte)) bool {
	for len(b) >= attributeHeader {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attributeHeader || n > len(b) {
			return false
		}
		take(binary.NativeEndian.Uint16(b[2:]), b[attributeHeader:n])
		b = b[min(aligned(n), len(b)):]
	}
	return true
}

func milliseconds(b []byte) time.Duration {
	return time.Duration(binary.NativeEndian.Uint32(b)) * time.Millisecond
}

// address makes an address of bytes in the order of the network.
func address(family uint8, ip, port []byte) netip.AddrPort {
	n := 4
	if family == unix.AF_INET6 {
		n = 16
	}
	a, _ := netip.AddrFromSlice(ip[:n])
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
}
