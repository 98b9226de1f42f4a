package descriptors

import (
	"cmp"
	"fmt"
	"strings"

	"clrsnap/internal/openfiles"
	"clrsnap/internal/procfs"
	"clrsnap/internal/sockdiag"
)

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
