package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap"
	"clrsnap/internal/openfiles"
	"clrsnap/internal/procfs"
	"clrsnap/internal/session"
	"clrsnap/internal/sockdiag"
	"clrsnap/profile"
)

// Bounds of the search for the other ends of pipes and sockets.
const (
	mostCalls      = 8    // blocked calls that are followed
	mostFarThreads = 1024 // threads of another process, of which some may be in a call
	mostHops       = 4    // processes, each of which waits for the next
	mostChildren   = 64
	farWithin      = 1500 * time.Millisecond // for the stacks of all other processes
)

// blockedCall is a read or a write that waits for the process at the other end.
type blockedCall struct {
	openfiles.Call
	pid     int
	command string
	own     bool              // of the process itself
	thread  profile.ThreadRef // in the call
	stack   *profile.Thread   // of the thread; nil: not known
	what    string            // "a pipe", "a socket to 127.0.0.1:80"

	ends   []farEnd
	hidden bool // the other end was not found, or only in part

	// awaited: the process waits for the end of the call's process, a child.
	awaited bool
}

// farEnd is a process at the other end.
type farEnd struct {
	pid     int
	command string
	own     bool            // the process itself
	ready   bool            // a thread is about to take what the caller waits to give, or the other way round
	does    string          // "is stopped by a signal", "sleeps in Shop.Feed.Run (Feed.cs:12)"
	stack   *profile.Thread // nil: not known
	next    *blockedCall    // in which the process is blocked in turn; nil: in none
}

// farEnds follows the blocked reads and writes of the process to the other ends, and looks for children with unread
// output.
func (g *gatherer) farEnds(ctx context.Context) {
	calls := g.blockedCalls()
	waits := g.e.waitsForChild()
	if len(calls) == 0 && !waits {
		return
	}
	g.progress("the other ends of pipes and sockets")
	bounded, cancel := context.WithTimeout(ctx, farWithin)
	defer cancel()
	f := farFinder{g: g, ctx: bounded, files: openfiles.Look(g.e.process.PID), stacks: map[int]*profile.Snapshot{}}
	for i := range calls {
		c := &calls[i]
		f.follow(c, map[int]bool{c.pid: true}, 0)
		if g.stays(c) && (!strings.HasPrefix(c.what, socketTo) || g.e.silent(c.what)) {
			g.e.blocked = append(g.e.blocked, *c)
		}
	}
	if waits {
		f.children(ctx)
	}
}

// blockedCalls are the reads and writes in which threads have stayed in all looks: one for each descriptor.
func (g *gatherer) blockedCalls() (out []blockedCall) {
	threads := g.e.threads()
	for i := range threads {
		w := &threads[i]
		t := w.last()
		if len(out) == mostCalls || !g.e.stuckInCall(w) {
			continue
		}
		c, ok := openfiles.CallOf(g.dir, t.OSThreadID)
		if !ok || !c.IsPipe() && !c.IsSocket() && !c.IsTerminal() || slices.ContainsFunc(out, func(o blockedCall) bool {
			return o.Link == c.Link && o.Writes == c.Writes
		}) {
			continue
		}
		out = append(out, blockedCall{Call: c, pid: g.e.process.PID, own: true, thread: ref(t), stack: t})
	}
	return out
}

// stays reports whether a thread is still in the call of the looks, and has moved no byte.
func (g *gatherer) stays(c *blockedCall) bool {
	tid := c.thread.OSThreadID
	now, ok := openfiles.CallOf(g.dir, tid)
	if !ok || now != c.Call {
		return false
	}
	moved, err := g.dir.TaskIO(tid)
	return err == nil && moved == g.e.last().moved[tid]
}

// stuckInCall reports whether a thread was in one system call for input or output in all looks, and has moved no byte
// in between. With a slow reader at the other end a thread is in the same call, too, but bytes move.
func (e *evidence) stuckInCall(w *watched) bool {
	tid := w.last().OSThreadID
	before, ok1 := e.first().moved[tid]
	after, ok2 := e.last().moved[tid]
	return ok1 && ok2 && before == after && w.known && w.ran <= e.whole()/100 && w.sameCalls() &&
		w.all(func(t *profile.Thread) bool { return t.Wait != nil && t.Wait.Kind == profile.WaitIO })
}

// silent reports whether a TCP connection has carried nothing since the first look. The bytes of its calls are not
// counted for threads.
func (e *evidence) silent(what string) bool {
	for i := range e.sockets {
		s := &e.sockets[i]
		if socketTo+s.remote == what && min(s.sent, s.received) >= e.whole() {
			return true
		}
	}
	return false
}

// waitsForExit reports whether a stack waits for the end of a child: in Process.WaitForExit, or in the state machine of
// Process.WaitForExitAsync.
func waitsForExit(frames []profile.Frame) bool {
	return slices.ContainsFunc(frames, func(f profile.Frame) bool {
		name, ok := strings.CutPrefix(f.Method, "System.Diagnostics.Process")
		return ok && (strings.HasPrefix(name, ".WaitForExit") || strings.HasPrefix(name, "+<WaitForExit"))
	})
}

// waitsForChild reports whether the process waits for the end of a child, as far as is known by now.
func (e *evidence) waitsForChild() bool {
	for i := range e.last().snap.Threads {
		if waitsForExit(e.last().snap.Threads[i].Frames) {
			return true
		}
	}
	l := e.lastFlight()
	return l != nil && slices.ContainsFunc(l.Tasks.Chains, func(c profile.TaskChain) bool {
		return waitsForExit(c.Frames)
	})
}

// farFinder finds the processes at the other ends.
type farFinder struct {
	g      *gatherer
	ctx    context.Context // bounds the looks at stacks
	files  *openfiles.Index
	stacks map[int]*profile.Snapshot // by process; nil: no stacks
}

// follow adds the processes at the other end of a call, and the calls in which those are blocked. seen are the
// processes before.
func (f *farFinder) follow(c *blockedCall, seen map[int]bool, hop int) {
	link := c.Link
	c.what = "a pipe"
	switch {
	case c.IsTerminal():
		c.what, c.hidden = "the terminal "+c.Link, true
		return
	case c.IsSocket():
		if link = f.peer(c); link == "" {
			c.hidden = true
			return
		}
	}
	var ends []openfiles.Holder
	for _, h := range f.files.Of(link) {
		if c.IsSocket() || (c.Writes && h.Reads || !c.Writes && h.Writes) {
			ends = append(ends, h)
		}
	}
	slices.SortStableFunc(ends, func(a, b openfiles.Holder) int { return cmp.Compare(usual(&a), usual(&b)) })
	c.hidden = len(ends) == 0
	for i := range ends {
		h := &ends[i]
		if !slices.ContainsFunc(c.ends, func(e farEnd) bool { return e.pid == h.PID }) {
			c.ends = append(c.ends, f.end(h, link, c, seen, hop))
		}
	}
}

// usual orders the holders of an end. The standard input and output are meant for the pipe; other descriptors may be
// inherited by accident.
func usual(h *openfiles.Holder) int {
	if h.FD <= 2 {
		return 0
	}
	return 1
}

// peer returns the link of the socket at the other end, and says what the call's socket is. "": not on this machine, or
// not found.
func (f *farFinder) peer(c *blockedCall) string {
	inode, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(c.Link, "socket:["), "]"), 10, 64)
	if err != nil {
		return ""
	}
	c.what = "a socket"
	dir, err := procfs.Open(c.pid)
	if err != nil {
		return ""
	}
	defer dir.Close()
	all, _ := dir.Connections()
	this, ok := all[inode]
	if !ok {
		if s, err := sockdiag.Unix(inode); err == nil && s.Peer != 0 {
			c.what = "a Unix socket"
			return socketLink(s.Peer)
		}
		return ""
	}
	c.what = socketTo + this.Remote.String()
	for other, o := range all {
		if o.Protocol == this.Protocol && o.Local == this.Remote && o.Remote == this.Local {
			return socketLink(other)
		}
	}
	return ""
}

// socketTo is the beginning of blockedCall.what for a TCP connection.
const socketTo = "a socket to "

func socketLink(inode uint64) string { return fmt.Sprintf("socket:[%d]", inode) }

// end describes the process that has the other end.
func (f *farFinder) end(h *openfiles.Holder, link string, c *blockedCall, seen map[int]bool, hop int) farEnd {
	e := farEnd{pid: h.PID, command: cmp.Or(h.Command, "a process"), own: h.PID == f.g.e.process.PID}
	dir, err := procfs.Open(h.PID)
	if err != nil {
		e.does = "has ended"
		return e
	}
	defer dir.Close()
	tids, _ := dir.Tasks()
	blocked := 0 // the thread that writes
	var call openfiles.Call
	for _, tid := range tids[:min(len(tids), mostFarThreads)] {
		o, ok := openfiles.CallOf(dir, tid)
		switch {
		case !ok:
			continue
		case o.Link == link && o.Writes != c.Writes:
			e.ready = true
		case blocked == 0 && o.Writes && (o.IsPipe() || o.IsSocket() || o.IsTerminal()):
			blocked, call = tid, o
		}
	}
	if e.own {
		return e
	}
	if blocked != 0 && !seen[h.PID] && hop < mostHops {
		seen[h.PID] = true
		next := &blockedCall{Call: call, pid: h.PID, command: e.command, thread: profile.ThreadRef{OSThreadID: blocked}}
		if e.stack = f.threadOf(h.PID, blocked); e.stack != nil {
			next.thread, next.stack = ref(e.stack), e.stack
		}
		f.follow(next, seen, hop+1)
		e.next = next
		return e
	}
	e.stack = f.working(h.PID)
	e.does = f.doing(dir, e.stack)
	return e
}

// doing says what a process does.
func (f *farFinder) doing(dir procfs.Dir, stack *profile.Thread) string {
	s, err := dir.Stat()
	switch {
	case err != nil:
		return "has ended"
	case s.State == 'T':
		return "is stopped by a signal"
	case stack != nil && ownFrame(stack.Frames) != nil:
		return doing(stack) + " in " + method(ownFrame(stack.Frames))
	case s.State == 'R':
		return "runs"
	}
	b, err := dir.ReadFile(procfs.TaskFile(dir.PID(), "syscall"))
	call, blocked := procfs.ParseSyscall(b)
	if err != nil || !blocked || call.Nr < 0 {
		return "does something else"
	}
	return "is " + session.InCall(call.Nr)
}

// snapshot looks at the threads of another process; nil: the process is no .NET process, may not be looked at, or there
// is no more time.
func (f *farFinder) snapshot(pid int) *profile.Snapshot {
	if s, ok := f.stacks[pid]; ok {
		return s
	}
	f.stacks[pid] = nil
	how := f.g.o.Process
	how.PackStacks = false
	p, err := clrsnap.Open(f.ctx, pid, how)
	if err != nil {
		return nil
	}
	defer p.Close()
	if s, err := p.SnapshotAll(f.ctx, nil); err == nil {
		f.stacks[pid] = s
	}
	return f.stacks[pid]
}

// threadOf is a thread of another process; nil: not known.
func (f *farFinder) threadOf(pid, tid int) *profile.Thread {
	s := f.snapshot(pid)
	if s == nil {
		return nil
	}
	for i := range s.Threads {
		if s.Threads[i].OSThreadID == tid {
			return &s.Threads[i]
		}
	}
	return nil
}

// working is the most telling thread of another .NET process: the main thread, or else a thread in the process's own
// code. nil: there is none.
func (f *farFinder) working(pid int) *profile.Thread {
	s := f.snapshot(pid)
	if s == nil {
		return nil
	}
	var out *profile.Thread
	for i := range s.Threads {
		t := &s.Threads[i]
		if resting(t) || ownFrame(t.Frames) == nil {
			continue
		}
		if t.OSThreadID == pid {
			return t
		}
		if out == nil {
			out = t
		}
	}
	return out
}

// children looks for children with writes to pipes of the process, unread. A child counts if some time later the child
// is still in the same call, and has not run.
func (f *farFinder) children(ctx context.Context) {
	list, err := f.g.dir.Children()
	if err != nil {
		return
	}
	list = list[:min(len(list), mostChildren)]
	before := f.undrained(list)
	if len(before) == 0 || !session.Sleep(ctx, lookGap) {
		return
	}
	now := f.undrained(list)
	for tid, c := range now {
		if o, ok := before[tid]; ok && o.Call == c.Call && o.switches == c.switches {
			f.follow(&c.blockedCall, map[int]bool{c.pid: true}, 0)
			f.g.e.blocked = append(f.g.e.blocked, c.blockedCall)
		}
	}
}

// childCall is the call of a child, and how often its thread has blocked.
type childCall struct {
	blockedCall
	switches uint64
}

// undrained are the writes of children to pipes whose other end the process has, by thread.
func (f *farFinder) undrained(children []int) map[int]childCall {
	out := map[int]childCall{}
	for _, pid := range children {
		dir, err := procfs.Open(pid)
		if err != nil {
			continue
		}
		tids, _ := dir.Tasks()
		for _, tid := range tids[:min(len(tids), mostFarThreads)] {
			c, ok := openfiles.CallOf(dir, tid)
			if !ok || !c.Writes || !c.IsPipe() || !f.reads(c.Link) {
				continue
			}
			s, err := dir.TaskStatus(tid)
			if err != nil {
				continue
			}
			call := childCall{switches: s.VoluntarySwitches, blockedCall: blockedCall{
				Call: c, pid: pid, thread: profile.ThreadRef{OSThreadID: tid}, awaited: true,
			}}
			if call.command, err = dir.Comm(); err != nil {
				call.command = "a process"
			}
			out[tid] = call
		}
		dir.Close()
	}
	return out
}

// reads reports whether the process has the reading end of a pipe.
func (f *farFinder) reads(link string) bool {
	return slices.ContainsFunc(f.files.Of(link), func(h openfiles.Holder) bool {
		return h.Reads && h.PID == f.g.e.process.PID
	})
}
