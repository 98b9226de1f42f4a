package procfs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Connection is an internet socket.
type Connection struct {
	Protocol      string // "tcp" or "udp", also over IPv6
	Local, Remote netip.AddrPort
	State         string // for example "established"; "" for udp
}

// MaxConnections bounds the sockets that are read of a network namespace.
const MaxConnections = 1 << 17

// Connections returns the internet sockets in the network namespace of the process, by their
// inodes (proc_pid_net(5)), including sockets of other processes there.
func (d Dir) Connections() (map[uint64]Connection, error) {
	out := map[uint64]Connection{}
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		if err := d.connections(file, out); err != nil && !errors.Is(err, fs.ErrNotExist) { // IPv6 may be missing
			return out, err
		}
	}
	return out, nil
}

// SocketProtocol returns the name of the kernel's protocol of a socket of the process, such as TCP or TCPv6.
func (d Dir) SocketProtocol(fd int32) (string, error) {
	var name [32]byte
	n, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d/fd/%d", d.fd, fd), "system.sockprotoname", name[:])
	return unix.ByteSliceToString(name[:max(n, 0)]), err
}

func (d Dir) connections(file string, out map[uint64]Connection) error {
	f, err := d.Open("net/" + file)
	if err != nil {
		return err
	}
	defer f.Close()
	protocol := strings.TrimSuffix(file, "6")
	lines := bufio.NewScanner(f)
	for lines.Scan() && len(out) < MaxConnections {
		if inode, c, ok := parseConnection(lines.Bytes(), protocol); ok {
			out[inode] = c
		}
	}
	return lines.Err()
}

// parseConnection parses a line: number, local address, remote address, state, queues, timer,
// retransmits, user, timeout, inode. The addresses are words in the order of the machine.
func parseConnection(line []byte, protocol string) (inode uint64, c Connection, ok bool) {
	var fields [10][]byte
	for i := range fields {
		fields[i], line = nextField(line)
	}
	c.Protocol = protocol
	var local, remote bool
	c.Local, local = parseAddress(fields[1])
	c.Remote, remote = parseAddress(fields[2])
	state, err := strconv.ParseUint(string(fields[3]), 16, 8)
	inode, numbered := number(fields[9])
	if protocol == "tcp" && state < uint64(len(tcpStates)) {
		c.State = tcpStates[state]
	}
	return inode, c, local && remote && err == nil && numbered && inode != 0
}

// tcpStates are the states of TCP sockets (include/net/tcp_states.h).
var tcpStates = [...]string{
	"", "established", "syn-sent", "syn-received", "fin-wait-1", "fin-wait-2", "time-wait", "closed", "close-wait",
	"last-ack", "listening", "closing", "syn-received",
}

// parseAddress parses 0100007F:1F90.
func parseAddress(field []byte) (a netip.AddrPort, ok bool) {
	addr, port, ok := strings.Cut(string(field), ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || len(addr) != 8 && len(addr) != 32 {
		return a, false
	}
	b := make([]byte, 0, 16)
	for ; len(addr) > 0; addr = addr[8:] {
		word, err := strconv.ParseUint(addr[:8], 16, 32)
		if err != nil {
			return a, false
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(word))
	}
	ip, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), true
}
