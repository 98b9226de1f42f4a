// Package descriptors says where the descriptors of a process lead: to files, to pipes and sockets with the processes
// at the other end, and to connections with their addresses and states.
package descriptors

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"clrsnap/internal/openfiles"
	"clrsnap/internal/procfs"
	"clrsnap/internal/sockdiag"
)

// Reader reads the descriptors of one process. The holders of pipes and sockets, and the connections, are as of the
// first descriptor that needs them.
type Reader struct {
	dir procfs.Dir
	pid int

	connections map[uint64]procfs.Connection // by inode; nil: not needed yet
	reads       int                          // of connections
	holders     *openfiles.Index             // nil: not needed yet
}

// New returns a reader of the descriptors of the process with a directory in /proc and an id.
func New(dir procfs.Dir, pid int) *Reader { return &Reader{dir: dir, pid: pid} }

// Of describes the target of a descriptor: a path, a pipe with the process at the other
// end, or the addresses and the state of a socket. The process may have closed the descriptor
// meanwhile, and opened another file with the same number.
func (r *Reader) Of(fd int32) string {
	link, err := r.dir.Readlink("fd/" + strconv.Itoa(int(fd)))
	if err != nil {
		return fmt.Sprintf("descriptor %d", fd)
	}
	if name, ok := strings.CutPrefix(link, "anon_inode:"); ok {
		name = strings.Trim(name, "[]")
		return cmp.Or(anonymous[name], name)
	}
	if strings.HasPrefix(link, "pipe:[") {
		return link + r.otherEnd(link, fd)
	}
	inode, isSocket := strings.CutPrefix(link, "socket:[")
	n, err := strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 64)
	if !isSocket || err != nil {
		return link
	}
	if r.connections == nil && r.read() != nil {
		return link
	}
	if c, ok := r.connections[n]; ok {
		return connectionText(&c)
	}
	return cmp.Or(r.unixSocket(n), r.unconnected(fd, n), link)
}

// mostReads bounds the reads of the list of connections.
const mostReads = 4

// read reads the list of connections.
func (r *Reader) read() (err error) {
	r.reads++
	r.connections, err = r.dir.Connections()
	return err
}

// unconnected describes a TCP socket that the kernel lists nowhere: the other end has reset the connection, or the
// socket has never had one. "": another protocol, a kernel that does not tell, or a socket younger than the list.
func (r *Reader) unconnected(fd int32, inode uint64) string {
	protocol, err := r.dir.SocketProtocol(fd)
	if err != nil || !strings.HasPrefix(protocol, "TCP") || r.reads >= mostReads || r.read() != nil {
		return ""
	}
	if c, ok := r.connections[inode]; ok {
		return connectionText(&c)
	}
	if len(r.connections) >= procfs.MaxConnections {
		return "" // the list has an end
	}
	return "tcp socket without a connection"
}

// anonymous has the usual names of files without a path (anon_inode_getfd in the kernel), where the
// kernel's name is another. The rest have the name of the system call that makes the file: eventfd,
// timerfd, inotify, signalfd, io_uring.
var anonymous = map[string]string{"eventpoll": "epoll"}

// connectionText describes a socket: "tcp 10.1.2.3:41234 → 10.1.2.9:5432 established".
func connectionText(c *procfs.Connection) string {
	text := c.Protocol + " " + c.Local.String()
	if c.Remote.Port() != 0 {
		text += " → " + c.Remote.String()
	}
	if c.State != "" {
		text += " " + c.State
	}
	return text
}

// maxEnds bounds the named holders of the other end of a pipe or a socket.
const maxEnds = 3

// files returns the holders of all pipes and sockets.
func (r *Reader) files() *openfiles.Index {
	if r.holders == nil {
		r.holders = openfiles.Look(r.pid)
	}
	return r.holders
}

// otherEnd describes the other end of a pipe: " ← sort (4711) fd 1" if the descriptor is the
// reading end. "" if the descriptor's end is unknown.
func (r *Reader) otherEnd(link string, fd int32) string {
	pid, all := r.pid, r.files().Of(link)
	var own openfiles.Holder
	for _, h := range all {
		if h.PID == pid && h.FD == int(fd) {
			own = h
		}
	}
	if own.Reads == own.Writes {
		return ""
	}
	var others []openfiles.Holder
	for _, h := range all {
		if own.Reads && h.Writes || own.Writes && h.Reads {
			others = append(others, h)
		}
	}
	arrow := " → "
	if own.Reads {
		arrow = " ← "
	}
	return arrow + r.ends(others)
}

// ends names the holders of a pipe or a socket.
func (r *Reader) ends(list []openfiles.Holder) string {
	var out []string
	for i := range list {
		h := &list[i]
		if len(out) == maxEnds {
			out = append(out, fmt.Sprintf("%d more", len(list)-maxEnds))
			break
		}
		who := fmt.Sprintf("%s (%d)", cmp.Or(h.Command, "process"), h.PID)
		if h.PID == r.pid {
			who = "this process"
		}
		out = append(out, fmt.Sprintf("%s fd %d", who, h.FD))
	}
	if len(out) > 0 {
		return strings.Join(out, ", ")
	}
	switch x := r.files(); {
	case x.Hidden == 1:
		return "not found (1 process cannot be looked at)"
	case x.Hidden > 0:
		return fmt.Sprintf("not found (%d processes cannot be looked at)", x.Hidden)
	case x.Partial:
		return "not found (too many processes)"
	}
	return "nobody that can be seen from here"
}

// unixSocket describes a Unix socket: the name of the socket or of the peer, and the holders of the
// peer; "": unknown.
func (r *Reader) unixSocket(inode uint64) string {
	s, err := r.askUnix(inode)
	if err != nil {
		return ""
	}
	text, name := "unix", s.Name
	if s.Listening {
		return text + " " + name + " listening"
	}
	if s.Peer == 0 {
		return strings.TrimSpace(text + " " + name)
	}
	if name == "" {
		if peer, err := r.askUnix(s.Peer); err == nil {
			name = peer.Name
		}
	}
	if name != "" {
		text += " " + name
	}
	return text + " → " + r.ends(r.files().Of(fmt.Sprintf("socket:[%d]", s.Peer)))
}

// askUnix asks the kernel for a Unix socket of the process's network namespace.
func (r *Reader) askUnix(inode uint64) (s sockdiag.UnixSocket, err error) {
	const namespace = "ns/net"
	theirs, err := r.dir.Readlink(namespace)
	if err != nil {
		return s, err
	}
	self, err := procfs.Self()
	if err != nil {
		return s, err
	}
	defer self.Close()
	if ours, err := self.Readlink(namespace); err == nil && ours == theirs {
		return sockdiag.Unix(inode)
	}
	f, err := r.dir.Open(namespace)
	if err != nil {
		return s, err
	}
	defer f.Close()
	return sockdiag.UnixIn(f, inode)
}
