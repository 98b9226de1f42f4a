package record

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/engine"
	"clrsnap/internal/perfevent"
	"clrsnap/internal/session"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// cpuSampler takes the kernel's samples of threads on a CPU, and walks the copies of their stacks.
type cpuSampler struct {
	r        *recorder
	events   *perfevent.Events
	period   time.Duration
	stats    profile.ModeStats
	quiet    bool // the samples are only for wall-clock sampling, of running threads
	held     heldSamples
	names    map[int]string // the kernel's names of threads, by thread id, as far as records had names
	size     stackSize
	cut      bool               // the copy of the last stack was too short
	sampled  session.Suspension // the latest sample, and
	copied   target.Stack       // its stack
	kernelAt map[uint64]int32   // locations by instruction pointer
	prompt   promptness
	stack    []int32
	buf      []byte
	updated  time.Duration // when the list of CPUs was last read

	unfollowed error // why a child has no CPU samples
	unseen     error // why a CPU has no samples
}

// cpusEvery is how often the list of CPUs is read: CPUs can be switched on and off.
const cpusEvery = time.Second

// firstStackCopy is how much of each stack the kernel copies at first, in bytes.
const firstStackCopy = 32 << 10

// late is the age from which a sample counts as late: its names may be newer than the sample.
const late = 250 * time.Millisecond

func newCPUSampler(r *recorder, pid int) (*cpuSampler, error) {
	period := time.Duration(float64(time.Second) / r.o.Rate)
	e, err := perfevent.Open(perfevent.Options{
		PID: pid, Period: period, StackBytes: firstStackCopy, Kernel: true, Children: r.o.Subprocesses,
	})
	if err != nil {
		return nil, err
	}
	c := &cpuSampler{r: r, events: e, period: period, names: map[int]string{}, kernelAt: map[uint64]int32{}}
	c.size.bytes = firstStackCopy
	c.stats = profile.ModeStats{Mode: profile.CPU, Rate: r.o.Rate}
	c.quiet = !r.o.has(profile.CPU)
	return c, nil
}

func (c *cpuSampler) close() { c.events.Close() }

// wait returns after a time, or when the kernel's buffers fill up.
func (c *cpuSampler) wait(d time.Duration) (full bool) {
	full, err := c.events.Wait(d)
	if err != nil {
		time.Sleep(d)
	}
	return full
}

// drain takes the samples out of the kernel's buffers.
func (c *cpuSampler) drain() {
	c.read(c.events.Read)
	if c.r.now >= c.updated+cpusEvery {
		c.updated = c.r.now
		if err := c.events.UpdateCPUs(); err != nil && c.unseen == nil {
			c.unseen = err
		}
	}
}

// finish takes the last samples.
func (c *cpuSampler) finish() {
	c.read(c.events.Stop)
	c.stats.Missed = c.events.Stats().Missed
}

func (c *cpuSampler) read(from func(func(*perfevent.Record)) error) {
	for _, rp := range c.r.all {
		rp.fresh = 0
		held, lost := c.held.take(rp.p.Live.PID())
		c.stats.Lost += lost
		for _, x := range held {
			c.sample(rp, x)
		}
	}
	if from(c.record) != nil {
		c.stats.Lost++ // at least one: the contents of a buffer made no sense
	}
	if on := c.prompt.on; c.prompt.wanted(c.r.all) != on && c.events.SetPrompt(!on) != nil {
		c.prompt.on, c.prompt.ended = false, true
	}
	if n := c.size.next(); n > 0 {
		if c.events.SetStackBytes(n) != nil {
			c.size.bytes = perfevent.MaxStackBytes // the size stays as it is
		}
	}
}

// record handles one record of the kernel's.
func (c *cpuSampler) record(x *perfevent.Record) {
	rp := c.r.recorded(x.PID)
	switch x.Kind {
	case perfevent.Lost:
		c.stats.Lost += x.Lost
	case perfevent.Named, perfevent.Executed:
		c.names[x.TID] = x.Name
	case perfevent.Started:
		if x.PID != x.ParentPID && c.r.o.Subprocesses {
			c.r.expect(x.PID, true)
		}
	case perfevent.Ended:
		delete(c.names, x.TID)
		if rp != nil {
			rp.remove(x.TID)
		}
	case perfevent.Sampled:
		if rp == nil {
			if c.r.o.Subprocesses && !c.r.expect(x.PID, true) {
				return
			}
			c.held.keep(x)
			return
		}
		c.sample(rp, x)
	}
}

// forget drops the held samples of a process that is not recorded.
func (c *cpuSampler) forget(pid int) { c.held.take(pid) }

// ended ends the work of follow for an exited process.
func (c *cpuSampler) ended(pid int) { c.events.Forget(pid) }

// follow has the kernel sample another process: a process older than the recording, or a process that
// the kernel does not take for a child of the others.
func (c *cpuSampler) follow(pid int) {
	if err := c.events.Follow(pid); err != nil && c.unfollowed == nil {
		c.unfollowed = err
	}
}

// sample walks one sample of the kernel's.
func (c *cpuSampler) sample(rp *recordedProcess, x *perfevent.Record) {
	if x.Time > rp.fresh { // the running code may have been compiled since
		rp.fresh = live.Monotonic()
		rp.p.Engine.Begin()
		rp.frames.begin()
	}
	t := rp.thread(x.TID, cmp.Or(x.Name, c.names[x.TID]))
	if c.r.wall != nil {
		c.r.wall.hasRun(t)
	}
	if !t.chosen || c.quiet && t.wall.owed == 0 && t.wall.wasOnCPU {
		return
	}
	r, repaired := c.walk(rp, t, x)
	c.stack = c.kernelFrames(c.stack[:0], x.Kernel)
	c.stack = rp.frames.appendStack(c.stack)
	out := profile.Sample{
		At: max(x.Time-c.r.start, 0), Weight: int64(c.period), Thread: t.sampled(), Node: c.r.b.Stack(c.stack),
		Mode: profile.CPU, State: profile.Running, Incomplete: !r.Complete,
	}
	if !c.quiet {
		c.r.b.Add(out)
	}
	if c.r.wall != nil {
		c.r.wall.settle(t, out)
	}
	c.count(x, r, repaired)
}

func (c *cpuSampler) count(x *perfevent.Record, r walk.Result, repaired bool) {
	c.stats.Samples++
	if !r.Complete {
		c.stats.Broken++
		if !errors.Is(r.Err, walk.ErrMissing) {
			c.r.unwalked = c.r.now
		}
	}
	if repaired {
		c.stats.Repaired++
	}
	if c.r.now-x.Time > late {
		c.stats.Late++
	}
}

// walk walks the stack of a sample; the locations are in rp.frames.stack. The thread has run on since,
// so only the copy of its stack counts. Where the copy is too short, memory read now is used, if it
// agrees with the copy.
func (c *cpuSampler) walk(rp *recordedProcess, t *recordedThread, x *perfevent.Record) (r walk.Result, repaired bool) {
	rp.frames.awaits.begin()
	if rp.frames.stack = rp.frames.stack[:0]; x.Context.Machine == 0 {
		return walk.Result{Complete: true}, false // the thread is exiting, and runs no more code of its own
	}
	s := &c.sampled
	c.copied = target.Stack{Region: target.Region{Base: arch.Addr(x.Context.Regs[rp.p.Arch.SP]), Data: x.Stack}}
	*s = session.Suspension{Process: rp.p, Thread: t.info}
	s.Walk = walk.Thread{Context: x.Context, Stack: &c.copied}
	c.cut = false
	r = rp.frames.walk(s, x.Time)
	if s.Managed && t.info.ID == 0 {
		rp.unnamed = true // the thread has become one of the runtime's
	}
	if !r.Complete {
		stack, ips := slices.Clone(rp.frames.stack), slices.Clone(rp.frames.ips)
		if r, repaired = c.mend(rp, t, x, s, r), true; !r.Complete {
			rp.frames.stack, rp.frames.ips, repaired = stack, ips, false
		}
	}
	if r.Complete {
		rp.frames.awaitRunning()
	}
	c.size.note(rp.frames.depth, c.cut)
	if c.r.o.watch != nil {
		c.r.o.watch(rp.frames, s, r.Complete, x.Time)
	}
	return r, repaired
}

// mend removes the causes of an incomplete walk, as far as possible, and walks the stack again.
func (c *cpuSampler) mend(rp *recordedProcess, t *recordedThread, x *perfevent.Record,
	s *session.Suspension, r walk.Result) walk.Result {
	missing := errors.Is(r.Err, walk.ErrMissing)
	if missing {
		c.cut = x.Truncated
		if c.extend(rp, s.Walk.Stack) {
			r = rp.frames.walk(s, x.Time)
		}
	}
	if !r.Complete && !(missing && beyond(rp, s.Walk.Stack) != nil) && rp.newMappings() {
		if missing {
			c.extend(rp, s.Walk.Stack)
		}
		r = rp.frames.walk(s, x.Time)
	}
	if !r.Complete && c.addFrames(rp, t, s) {
		r = rp.frames.walk(s, x.Time)
	}
	return r
}

// overlap is how much of the end of a copied stack must be unchanged, in bytes, so that the memory
// beyond counts as unchanged too.
const overlap = 4 << 10

// extend adds to a copied stack the memory beyond the copy, with its present content. The thread runs,
// but a frame changes only when control returns into the frame, and then other calls soon use the
// stack below. So the rest counts as unchanged if the end of the copy, many frames, is unchanged
// before and after the rest is read.
func (c *cpuSampler) extend(rp *recordedProcess, s *target.Stack) bool {
	n := len(s.Data)
	end := s.Base + arch.Addr(n)
	m := beyond(rp, s)
	if n < 2*overlap || m == nil {
		return false
	}
	more := min(int(m.End-end), rp.p.Options.MaxStack)
	if need := n + more; cap(c.buf) < need {
		c.buf = make([]byte, need)
	}
	buf := c.buf[:n+more]
	copy(buf, s.Data)
	tail := s.Data[n-overlap:]
	if rp.p.Live.ReadMemory(buf[n-overlap:], end-overlap) != nil || !bytes.Equal(buf[n-overlap:n], tail) {
		return false
	}
	var again [overlap]byte
	if rp.p.Live.ReadMemory(again[:], end-overlap) != nil || !bytes.Equal(again[:], tail) {
		return false
	}
	s.Data = buf
	return true
}

// beyond returns the mapping in which a copied stack goes on, if a walk has missed a word there; nil:
// no word is missing, or the mapping is not known.
func beyond(rp *recordedProcess, s *target.Stack) *target.Mapping {
	end := s.Base + arch.Addr(len(s.Data))
	m := rp.p.Engine.Maps.Find(end)
	if m == nil || s.Miss < end || s.Miss >= m.End {
		return nil
	}
	return m
}

// addFrames adds the present state of the runtime's Thread object: its chain of Frames and its
// hijacked return address. It reports whether the chain leads into the copied stack.
func (c *cpuSampler) addFrames(rp *recordedProcess, t *recordedThread, s *session.Suspension) bool {
	if t.info.ID == 0 {
		return false
	}
	head := make([]byte, rp.p.Managed.Threads.HeadLen())
	if rp.p.Live.ReadMemory(head, arch.Addr(t.info.ID)) != nil {
		return false
	}
	stack := s.Walk.Stack
	s.Walk, _ = rp.p.Engine.Thread(&engine.Captured{
		Object: arch.Addr(t.info.ID), OSID: t.info.NSThreadID, Context: s.Walk.Context, Head: head, Stack: stack,
	})
	return s.Walk.Info.Address != 0 && (s.Walk.Info.Frame == thread.FrameTop || stack.Contains(s.Walk.Info.Frame))
}

// kernelFrames appends the locations of a call chain in the kernel.
func (c *cpuSampler) kernelFrames(out []int32, chain []uint64) []int32 {
	for i, ip := range chain {
		if i > 0 {
			ip-- // a call can be the last instruction of its function
		}
		out = append(out, c.kernelFrame(ip))
	}
	return out
}

func (c *cpuSampler) kernelFrame(ip uint64) int32 {
	if l, ok := c.kernelAt[ip]; ok {
		return l
	}
	f := profile.Function{Kind: snapshot.Kernel, Display: kernelMark + strconv.FormatUint(ip, 16)}
	l := c.r.b.Location(profile.Location{Function: c.r.b.Function(f)})
	if len(c.kernelAt) < maxFrameKeys {
		c.kernelAt[ip] = l
	}
	return l
}

// kernelMark stands before the address of a kernel function without a name yet. Reading the kernel's
// symbols takes a twentieth of a second of CPU time, so the name waits until the recording is over.
const kernelMark = "0x"

// nameKernel names the functions of the kernel.
func nameKernel(r *profile.Recording) *profile.Recording {
	var addrs []uint64
	for i := range r.Functions {
		if addr, ok := unnamedKernel(&r.Functions[i]); ok {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return r
	}
	named, _ := perfevent.NameKernel(addrs) // without a name, the function is "[kernel]"
	return r.Rename(func(f *profile.Function) profile.Function {
		addr, ok := unnamedKernel(f)
		if !ok {
			return *f
		}
		out := profile.Function{Kind: snapshot.Kernel, Display: "[kernel]", Short: "[kernel]", Module: "kernel"}
		if in, ok := named[addr]; ok {
			out.Method, out.Display, out.Short = in.Name, in.Name, in.Name
			out.Module = cmp.Or(in.Module, out.Module)
		}
		return out
	})
}

// unnamedKernel is the address of a kernel function without a name yet.
func unnamedKernel(f *profile.Function) (addr uint64, ok bool) {
	digits, ok := strings.CutPrefix(f.Display, kernelMark)
	if !ok || f.Kind != snapshot.Kernel {
		return 0, false
	}
	addr, err := strconv.ParseUint(digits, 16, 64)
	return addr, err == nil
}

// stackSize chooses how much of each stack to copy. A copy costs the target time and room in its
// caches, so the copy should be no larger than necessary.
type stackSize struct {
	bytes   int                  // at present
	samples int                  // since the size was last chosen
	deeper  [len(stackSizes)]int // samples whose stacks are deeper than each size
	grown   bool                 // the size has been too small once: it never shrinks again
}

// stackSizes are the sizes to choose from, in bytes.
var stackSizes = [...]int{4 << 10, 8 << 10, 16 << 10, 32 << 10, perfevent.MaxStackBytes}

// note counts a stack that uses depth bytes; more: the stack is deeper than its copy.
func (s *stackSize) note(depth int, more bool) {
	s.samples++
	for i, n := range stackSizes {
		if depth > n || more && s.bytes >= n {
			s.deeper[i]++
		}
	}
}

// next returns a better size, or 0 if the present size is good. The size grows if more than one stack
// in 200 is deeper, and shrinks to a size that is enough for all but one stack in 1,000.
func (s *stackSize) next() int {
	const enough, sure = 200, 1000
	if s.samples < enough {
		return 0
	}
	for i, n := range stackSizes {
		grow := n > s.bytes && s.deeper[i]*enough <= s.samples
		last := i == len(stackSizes)-1 && n > s.bytes
		switch {
		case n == s.bytes && s.deeper[i]*enough <= s.samples:
			if s.samples >= sure {
				*s = stackSize{bytes: s.bytes, grown: s.grown}
			}
			return 0
		case n < s.bytes && !s.grown && s.samples >= sure && s.deeper[i]*sure <= s.samples:
			*s = stackSize{bytes: n}
			return n
		case grow || last:
			*s = stackSize{bytes: n, grown: true}
			return n
		}
	}
	return 0
}
