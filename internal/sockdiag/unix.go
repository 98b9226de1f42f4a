package sockdiag

import (
	"encoding/binary"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// UnixSocket is a Unix socket.
type UnixSocket struct {
	Name      string // a path; an abstract name begins with @; "": the socket has no name
	Listening bool
	Peer      uint64 // the inode of the connected socket; 0: none
}

// The request for a Unix socket, and the kernel's answer.
const (
	unixRequestLen = 24
	unixMessageLen = 16
	showName       = 1 << 0 // UDIAG_SHOW_NAME
	showPeer       = 1 << 2 // UDIAG_SHOW_PEER
	attributeName  = 0      // UNIX_DIAG_NAME
	attributePeer  = 2      // UNIX_DIAG_PEER
	stateListening = 10     // TCP_LISTEN in include/net/tcp_states.h
	noCookie       = 1<<32 - 1
)

// Unix returns a Unix socket of this process's own network namespace, by its inode.
func Unix(inode uint64) (s UnixSocket, err error) {
	if inode == 0 || inode >= noCookie {
		return s, unix.ENOENT
	}
	found := false
	err = ask(unixRequest(uint32(inode)), func(b []byte) (bool, error) {
		done, err := eachMessage(b, func(b []byte) { s, found = parseUnix(b) })
		return done || found, err
	})
	if err == nil && !found {
		err = ErrFormat
	}
	return s, err
}

// UnixIn is Unix in another network namespace. file is a /proc/PID/ns/net. UnixIn takes CAP_SYS_ADMIN.
func UnixIn(file *os.File, inode uint64) (s UnixSocket, err error) {
	err = in(file, func() (err error) { s, err = Unix(inode); return err })
	return s, err
}

// unixRequest asks for a single socket.
func unixRequest(inode uint32) []byte {
	b := make([]byte, headerLen+unixRequestLen)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], byFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[headerLen:]
	r[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(r[4:], noCookie) // in any state
	binary.NativeEndian.PutUint32(r[8:], inode)
	binary.NativeEndian.PutUint32(r[12:], showName|showPeer)
	binary.NativeEndian.PutUint64(r[16:], 1<<64-1)
	return b
}

// parseUnix parses a unix_diag_msg and the attributes after the message.
func parseUnix(b []byte) (s UnixSocket, ok bool) {
	if len(b) < unixMessageLen || b[0] != unix.AF_UNIX {
		return s, false
	}
	s.Listening = b[2] == stateListening
	ok = eachAttribute(b[unixMessageLen:], func(kind uint16, value []byte) {
		switch {
		case kind == attributeName && len(value) > 0:
			s.Name = unixName(value)
		case kind == attributePeer && len(value) >= 4:
			s.Peer = uint64(binary.NativeEndian.Uint32(value))
		}
	})
	return s, ok
}

// unixName is the text for a name: a path ends with a zero, an abstract name begins with a zero.
func unixName(b []byte) string {
	if b[0] == 0 {
		return "@" + strings.TrimRight(string(b[1:]), "\x00")
	}
	return strings.TrimRight(string(b), "\x00")
}
