package gather

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"clrsnap/internal/procfs"
	"clrsnap/internal/sockdiag"
)

// connections notes the TCP connections of the process, and how long each has been silent.
func (g *Gatherer) connections() {
	own, err := g.ownSockets()
	if err != nil {
		return // descriptors cannot be read: moment has said so
	}
	list, err := g.silence()
	if err != nil {
		g.Miss("Connections were not looked at: %v.", err)
		return
	}
	all, _ := g.dir.Connections() // without all, listening sockets are not known
	listens := listeners(all, own)
	g.Unaccepted = unaccepted(list, listens)
	for i := range list {
		c := &list[i]
		if !own[c.Inode] {
			continue
		}
		s := Socket{
			Local: c.Local.String(), Remote: c.Remote.String(), State: "established", Sent: c.Sent,
			Received: c.Received, heard: c.Heard, Ours: !listens.has(c.Local),
			Own: listens.has(c.Remote) && c.Remote.Addr() == c.Local.Addr(),
		}
		if c.Connecting {
			s.State = "syn-sent"
		}
		g.Sockets = append(g.Sockets, s)
	}
}

// unaccepted counts the connections that nobody has accepted, by address.
func unaccepted(list []sockdiag.Connection, listens listening) []Unaccepted {
	by := map[netip.AddrPort]*Unaccepted{}
	for i := range list {
		c := &list[i]
		if c.Inode != 0 || c.Connecting || !listens.has(c.Local) {
			continue
		}
		u := by[c.Local]
		if u == nil {
			u = &Unaccepted{Local: c.Local.String()}
			by[c.Local] = u
		}
		u.Count, u.Oldest = u.Count+1, max(u.Oldest, c.Received)
	}
	var out []Unaccepted
	for _, u := range by {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b Unaccepted) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Local, b.Local)) })
	return out
}

// ownSockets are the inodes of the process's sockets.
func (g *Gatherer) ownSockets() (map[uint64]bool, error) {
	names, err := g.dir.Names("fd")
	if err != nil {
		return nil, err
	}
	out := map[uint64]bool{}
	for _, name := range names {
		to, err := g.dir.Readlink("fd/" + name)
		if err != nil || !strings.HasPrefix(to, "socket:[") {
			continue
		}
		var inode uint64
		if n, _ := fmt.Sscanf(to, "socket:[%d]", &inode); n == 1 {
			out[inode] = true
		}
	}
	return out, nil
}

// silence lists the connections of the process's network namespace.
func (g *Gatherer) silence() ([]sockdiag.Connection, error) {
	const namespace = "ns/net"
	theirs, err := g.dir.Readlink(namespace)
	if err != nil {
		return nil, err
	}
	self, err := procfs.Self()
	if err != nil {
		return nil, err
	}
	defer self.Close()
	if ours, err := self.Readlink(namespace); err == nil && ours == theirs {
		return sockdiag.Connections()
	}
	f, err := g.dir.Open(namespace)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := sockdiag.ConnectionsIn(f)
	if err != nil {
		return nil, fmt.Errorf("they are in another network namespace, which takes CAP_SYS_ADMIN: %w", err)
	}
	return list, nil
}

// listening are the addresses at which the process listens.
type listening map[netip.AddrPort]bool

func listeners(all map[uint64]procfs.Connection, own map[uint64]bool) listening {
	out := listening{}
	for inode, c := range all {
		if own[inode] && c.State == "listening" {
			out[c.Local] = true
		}
	}
	return out
}

// has reports whether the process listens at an address, or at the address's port of all
// addresses.
func (l listening) has(a netip.AddrPort) bool {
	return l[a] || l[netip.AddrPortFrom(netip.IPv4Unspecified(), a.Port())] ||
		l[netip.AddrPortFrom(netip.IPv6Unspecified(), a.Port())]
}
