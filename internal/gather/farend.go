package gather

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
	"clrsnap/internal/phrase"
	"clrsnap/internal/procfs"
	"clrsnap/internal/session"
	"clrsnap/internal/sockdiag"
	"clrsnap/snapshot"
)

// Bounds of the search for the other ends of pipes and sockets.
const (
	mostCalls      = 8    // blocked calls that are followed
	mostFarThreads = 1024 // threads of another process; some may be in a call
	mostHops       = 4    // processes, each of which waits for the next
	mostChildren   = 64
	farWithin      = 1500 * time.Millisecond // for the stacks of all other processes
)

// farEnds follows the blocked reads and writes of the process to the other ends, and looks for children with unread
// output.
func (g *Gatherer) farEnds(ctx context.Context) {
	calls := g.blockedCalls()
	waits := g.waitsForChild()
	if len(calls) == 0 && !waits {
		return
	}
	g.progress("the other ends of pipes and sockets")
	bounded, cancel := context.WithTimeout(ctx, farWithin)
	defer cancel()
	f := farFinder{g: g, ctx: bounded, files: openfiles.Look(g.Process.PID), stacks: map[int]*snapshot.Snapshot{}}
	for i := range calls {
		c := &calls[i]
		f.follow(c, map[int]bool{c.Pid: true}, 0)
		if g.stays(c) && (!strings.HasPrefix(c.What, socketTo) || g.silent(c.What)) {
			g.Blocked = append(g.Blocked, *c)
		}
	}
	if waits {
		f.children(ctx)
	}
}

// blockedCalls are the reads and writes in which threads have stayed in all looks: one for each descriptor.
func (g *Gatherer) blockedCalls() (out []BlockedCall) {
	threads := g.Threads()
	for i := range threads {
		w := &threads[i]
		t := w.Last()
		if len(out) == mostCalls || !g.stuckInCall(w) {
			continue
		}
		c, ok := openfiles.CallOf(g.dir, t.OSThreadID)
		if !ok || !c.IsPipe() && !c.IsSocket() && !c.IsTerminal() || slices.ContainsFunc(out, func(o BlockedCall) bool {
			return o.Link == c.Link && o.Writes == c.Writes
		}) {
			continue
		}
		out = append(out, BlockedCall{Call: c, Pid: g.Process.PID, Own: true, Thread: Ref(t), Stack: t})
	}
	return out
}

// stays reports whether a thread is still in the call of the looks, and has moved no byte.
func (g *Gatherer) stays(c *BlockedCall) bool {
	tid := c.Thread.OSThreadID
	now, ok := openfiles.CallOf(g.dir, tid)
	if !ok || now != c.Call {
		return false
	}
	moved, err := g.dir.TaskIO(tid)
	return err == nil && moved == g.Last().moved[tid]
}

// stuckInCall reports whether a thread was in one system call for input or output in all looks, and has moved no byte
// in between. With a slow reader at the other end a thread is in the same call, too, but bytes move.
func (e *Evidence) stuckInCall(w *Watched) bool {
	tid := w.Last().OSThreadID
	before, ok1 := e.First().moved[tid]
	after, ok2 := e.Last().moved[tid]
	return ok1 && ok2 && before == after && w.known && w.Ran <= e.Whole()/100 && w.sameCalls() &&
		w.All(func(t *snapshot.Thread) bool { return t.Wait != nil && t.Wait.Kind == snapshot.WaitIO })
}

// silent reports whether a TCP connection has carried nothing since the first look. The bytes of its calls are not
// counted for threads.
func (e *Evidence) silent(what string) bool {
	for i := range e.Sockets {
		s := &e.Sockets[i]
		if socketTo+s.Remote == what && min(s.Sent, s.Received) >= e.Whole() {
			return true
		}
	}
	return false
}

// waitsForChild reports whether the process waits for the end of a child, as far as is known by now.
func (e *Evidence) waitsForChild() bool {
	for i := range e.Last().Snap.Threads {
		if phrase.WaitsForExit(e.Last().Snap.Threads[i].Frames) {
			return true
		}
	}
	l := e.LastFlight()
	return l != nil && slices.ContainsFunc(l.Tasks.Chains, func(c snapshot.TaskChain) bool {
		return phrase.WaitsForExit(c.Frames)
	})
}

// nameChildren names the child process that threads wait for, in the targets of the waits: the only child, or one of
// several children with the same command.
func (g *Gatherer) nameChildren(s *snapshot.Snapshot) {
	text := ""
	for i := range s.Threads {
		if t := &s.Threads[i]; phrase.WaitsForChild(t) {
			if text == "" {
				list, _ := g.dir.Children()
				if text = childText(commands(list)); text == "" {
					return
				}
			}
			t.Wait.Target = text
		}
	}
}

// commands are the commands of processes, by id.
func commands(list []int) map[int]string {
	out := map[int]string{}
	for _, pid := range list[:min(len(list), mostChildren)] {
		if dir, err := procfs.Open(pid); err == nil {
			if name, err := dir.Comm(); err == nil {
				out[pid] = name
			}
			dir.Close()
		}
	}
	return out
}

// childText names one of some processes: ", sleep (4711)", or ", one of 12 with the command sleep". "": there are
// several commands, or none.
func childText(commands map[int]string) (text string) {
	names := Tally{}
	for pid, name := range commands {
		names[name]++
		text = fmt.Sprintf(", %s (%d)", name, pid)
	}
	name, n := names.Top()
	switch {
	case len(names) > 1:
		return ""
	case n > 1:
		return fmt.Sprintf(", one of %d with the command %s", n, name)
	}
	return text
}

// farFinder finds the processes at the other ends.
type farFinder struct {
	g      *Gatherer
	ctx    context.Context // bounds the looks at stacks
	files  *openfiles.Index
	stacks map[int]*snapshot.Snapshot // by process; nil: no stacks
}

// follow adds the processes at the other end of a call, and the calls in which those are blocked. seen are the
// processes before.
func (f *farFinder) follow(c *BlockedCall, seen map[int]bool, hop int) {
	link := c.Link
	c.What = "a pipe"
	switch {
	case c.IsTerminal():
		c.What, c.hidden = "the terminal "+c.Link, true
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
		if !slices.ContainsFunc(c.Ends, func(e FarEnd) bool { return e.Pid == h.PID }) {
			c.Ends = append(c.Ends, f.end(h, link, c, seen, hop))
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
func (f *farFinder) peer(c *BlockedCall) string {
	inode, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(c.Link, "socket:["), "]"), 10, 64)
	if err != nil {
		return ""
	}
	c.What = "a socket"
	dir, err := procfs.Open(c.Pid)
	if err != nil {
		return ""
	}
	defer dir.Close()
	all, _ := dir.Connections()
	this, ok := all[inode]
	if !ok {
		if s, err := sockdiag.Unix(inode); err == nil && s.Peer != 0 {
			c.What = "a Unix socket"
			return socketLink(s.Peer)
		}
		return ""
	}
	c.What = socketTo + this.Remote.String()
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
func (f *farFinder) end(h *openfiles.Holder, link string, c *BlockedCall, seen map[int]bool, hop int) FarEnd {
	e := FarEnd{Pid: h.PID, Command: cmp.Or(h.Command, "a process"), Own: h.PID == f.g.Process.PID}
	dir, err := procfs.Open(h.PID)
	if err != nil {
		e.Does = "has ended"
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
			e.Ready = true
		case e.Own && e.stack == nil && link != c.Link && o.Link == link && o.Writes: // of a socket
			e.stack = f.g.Last().ByID()[tid]
		case blocked == 0 && o.Writes && (o.IsPipe() || o.IsSocket() || o.IsTerminal()):
			blocked, call = tid, o
		}
	}
	if e.Own {
		return e
	}
	if blocked != 0 && !seen[h.PID] && hop < mostHops {
		seen[h.PID] = true
		next := &BlockedCall{Call: call, Pid: h.PID, Command: e.Command,
			Thread: snapshot.ThreadRef{OSThreadID: blocked}}
		if e.stack = f.threadOf(h.PID, blocked); e.stack != nil {
			next.Thread, next.Stack = Ref(e.stack), e.stack
		}
		f.follow(next, seen, hop+1)
		e.Next = next
		return e
	}
	e.stack = f.working(h.PID)
	e.Does = f.doing(dir, e.stack)
	return e
}

// doing says what a process does.
func (f *farFinder) doing(dir procfs.Dir, stack *snapshot.Thread) string {
	s, err := dir.Stat()
	switch {
	case err != nil:
		return "has ended"
	case s.State == 'T':
		return "is stopped by a signal"
	case stack != nil && OwnFrame(stack.Frames) != nil:
		return phrase.Doing(stack) + " in " + Place(stack.Frames)
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
func (f *farFinder) snapshot(pid int) *snapshot.Snapshot {
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
func (f *farFinder) threadOf(pid, tid int) *snapshot.Thread {
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
func (f *farFinder) working(pid int) *snapshot.Thread {
	s := f.snapshot(pid)
	if s == nil {
		return nil
	}
	var out *snapshot.Thread
	for i := range s.Threads {
		t := &s.Threads[i]
		if Resting(t) || OwnFrame(t.Frames) == nil {
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
			f.follow(&c.BlockedCall, map[int]bool{c.Pid: true}, 0)
			f.g.Blocked = append(f.g.Blocked, c.BlockedCall)
		}
	}
}

// childCall is the call of a child, and how often its thread has blocked.
type childCall struct {
	BlockedCall
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
			call := childCall{switches: s.VoluntarySwitches, BlockedCall: BlockedCall{
				Call: c, Pid: pid, Thread: snapshot.ThreadRef{OSThreadID: tid}, Awaited: true,
			}}
			if call.Command, err = dir.Comm(); err != nil {
				call.Command = "a process"
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
		return h.Reads && h.PID == f.g.Process.PID
	})
}
