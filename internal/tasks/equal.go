package tasks

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"clrsnap/snapshot"
)

// maxTargets is the number of sockets whose chains are shown apart: the chains of a server's many clients are one
// group.
const maxTargets = 8

// joinTargets joins chains that differ only in sockets, if there are many.
func joinTargets(list []*snapshot.TaskChain) []*snapshot.TaskChain {
	groups := map[string][]*snapshot.TaskChain{}
	for _, c := range list {
		if c.WaitsFor != nil && c.WaitsFor.Kind == snapshot.AwaitsSocket {
			key := KeyOf(c, false)
			groups[key] = append(groups[key], c)
		}
	}
	joined := map[*snapshot.TaskChain]bool{}
	for _, g := range groups {
		if len(g) <= maxTargets {
			continue
		}
		for _, c := range g[1:] {
			Merge(g[0], c)
			joined[c] = true
		}
	}
	return slices.DeleteFunc(list, func(c *snapshot.TaskChain) bool { return joined[c] })
}

// RemoteTarget leaves the local address of a socket out: a client has another local address for each connection.
func RemoteTarget(target string) string {
	if f := strings.Fields(target); len(f) > 4 && f[3] == Arrow {
		return strings.Join(append(f[:2:2], f[3:]...), " ")
	}
	return target
}

const Arrow = "→" // in connectionText

// CommonTarget is the common part of two sockets: the remote address, the local address, or the operation.
func CommonTarget(a, b string) string {
	if a == b {
		return a
	}
	if ra, rb := RemoteTarget(a), RemoteTarget(b); ra == rb {
		return ra
	}
	f, g := strings.Fields(a), strings.Fields(b)
	n := 0
	for n < min(len(f), len(g)) && f[n] == g[n] && f[n] != Arrow {
		n++
	}
	return strings.Join(f[:n], " ")
}

// KeyOf is equal for equal chains; targets: with equal remote addresses.
func KeyOf(c *snapshot.TaskChain, targets bool) string {
	var key []byte
	for i := range c.Frames {
		f := &c.Frames[i]
		key = append(append(append(key, f.Module...), 0), f.Display...)
		key = append(append(key, 0), f.Signature...)
		if f.Line != nil {
			key = strconv.AppendInt(append(append(key, 0), f.Line.File...), int64(f.Line.Line), 10)
		}
		key = append(key, 1)
	}
	key = append(key, c.State...)
	if c.Circular {
		key = append(key, 2)
	}
	if w := c.WaitsFor; w != nil {
		key = append(append(append(key, 1), w.Kind...), 0)
		key = append(append(key, w.Type...), 0)
		if targets {
			key = append(key, RemoteTarget(w.Target)...)
		}
		if w.Kind == snapshot.AwaitsSemaphore {
			key = strconv.AppendUint(append(key, 0), w.Object, 16)
		}
	}
	return string(key)
}

// chainSeed makes keys of one run of clrsnap comparable.
var chainSeed = maphash.MakeSeed()

// ChainKey is equal for equal chains, in all looks of one run of clrsnap. A semaphore that the collector has moved
// makes another key.
func ChainKey(c *snapshot.TaskChain) uint64 { return maphash.String(chainSeed, KeyOf(c, false)) }

// Merge adds an equal chain.
func Merge(to, c *snapshot.TaskChain) {
	to.Count += c.Count
	to.Threads = append(to.Threads, c.Threads...)
	a, b := to.WaitsFor, c.WaitsFor
	if a == nil || b == nil {
		return
	}
	if a.Object != b.Object {
		a.Object = 0
	}
	a.Target = CommonTarget(a.Target, b.Target)
	if b.HasDue && (!a.HasDue || b.Due < a.Due) {
		a.Due, a.HasDue = b.Due, true
	}
}
