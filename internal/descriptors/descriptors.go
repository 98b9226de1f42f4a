// Package descriptors says where the descriptors of a process lead: to files, to pipes and sockets with the processes at
// the other end, and to connections with their addresses and states.
package descriptors

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"clrsnap/internal/openfiles"
	"clrsnap/internal/procfs"
)

// Reader reads the descriptors of one process. The holders of pipes and sockets, and the connections, are as of the
// first descriptor that needs them.
type Reader struct {
	dir procfs.Dir
	pid int

	connections map[uint64]procfs.Connection // by inode; nil: not needed yet
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
	if r.connections == nil {
		if r.connections, err = r.dir.Connections(); err != nil {
			return link
		}
	}
	if c, ok := r.connections[n]; ok {
		return connectionText(&c)
	}
	return cmp.Or(r.unixSocket(n), link)
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
