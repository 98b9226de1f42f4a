package live

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// fault is an event during a capture.
type fault struct {
	name   string
	before func(*injection) error // the capture
	do     func(*injection) error // at the step
	after  func(*injection) error // the capture
	may    []error                // what the capture may fail with

	strict  bool          // the watchdog has its usual limit
	short   bool          // waiting is in vain
	linger  time.Duration // how long the tracer stays at the step by itself
	foreign bool          // the tracer is another process: see ownRole
	native  bool          // not with a .NET program
	fatal   bool          // the target has exited afterwards
	steps   uint32        // bits; 0: all
}

// injection is a fault under way.
type injection struct {
	f    *fault
	step uint32
	pid  int
	tid  int
	each bool         // captured at once with all other threads
	ft   *faultTarget // nil: a .NET program
	sh   *shared
	dbg  *exec.Cmd
	said string // what dbg said

	waitedBefore uint64 // see notItsFault
}

var exited = []error{target.ErrThreadExited, ErrExited}

func faultList(v1, v2 *freezer) []*fault {
	list := []*fault{
		{name: "nothing"},
		{name: "tracer killed", do: func(x *injection) error { return x.kill(&x.sh.tracer, unix.SIGKILL) },
			may: []error{ErrTracerLost}},
		{name: "watchdog killed", do: func(x *injection) error { return x.kill(&x.sh.watchdog, unix.SIGKILL) },
			may: []error{ErrTracerLost}},
		{name: "tracer stopped", strict: true,
			do:  func(x *injection) error { return x.kill(&x.sh.tracer, unix.SIGSTOP) },
			may: []error{ErrWatchdog, ErrNotStopping}},
		{name: "tracer late", strict: true, linger: 30 * time.Millisecond, may: []error{ErrWatchdog, ErrNotStopping}},
		{name: "our process killed", foreign: true},
		{name: "our process stopped", foreign: true},
		{name: "signal", native: true, do: func(x *injection) error { return x.signal() }},
		{name: "queued signals", native: true, do: func(x *injection) error { return x.queue(3) }},
		{name: "group stop, then SIGCONT", do: func(x *injection) error { return unix.Kill(x.pid, unix.SIGSTOP) },
			after: (*injection).contAfterStop},
		{name: "SIGCONT in a group stop", before: (*injection).groupStop,
			do:    func(x *injection) error { return unix.Kill(x.pid, unix.SIGCONT) },
			after: func(x *injection) error { return unix.Kill(x.pid, unix.SIGCONT) },
			steps: ^uint32(1<<stepMissed | 1<<stepSignal | 1<<stepContinue)}, // the thread is in its stop already
		{name: "debugger comes", do: (*injection).debugger, after: (*injection).debuggerEnds, may: []error{ErrTraced}},
		{name: "already traced", before: (*injection).debuggerFirst, after: (*injection).debuggerEnds,
			may: []error{ErrTraced}, steps: 1<<stepSeize | 1<<stepSeized | 1<<stepDetached},
		{name: "thread exits", native: true, do: act(actExitThread), may: exited},
		{name: "exec", native: true, do: act(actExec), after: (*injection).newProgram,
			may: append([]error{ErrNotStopping}, exited...)},
		{name: "fork", native: true, do: act(actFork)},
		{name: "vfork", native: true, do: act(actVfork)},
		{name: "clone", native: true, do: act(actClone)},
		{name: "process exits", native: true, fatal: true, do: act(actExitProcess), may: exited},
		{name: "process killed", native: true, fatal: true,
			do: func(x *injection) error { return unix.Kill(x.pid, unix.SIGKILL) }, may: exited},
		{name: "thread killed", native: true, fatal: true,
			do: func(x *injection) error { return unix.Tgkill(x.pid, x.tid, unix.SIGKILL) }, may: exited},
	}
	for _, cg := range []*freezer{v1, v2} {
		if cg != nil {
			list = append(list, &fault{name: "frozen cgroup, " + cg.name,
				before: func(x *injection) error { return cg.add(x.pid) },
				do:     func(x *injection) error { cg.freeze(x.pid); return nil },
				after:  func(x *injection) error { return cg.thaw(x.pid) }, may: []error{ErrNotStopping}, short: true})
		}
	}
	return list
}

// act makes the thread do something at the step, if the thread runs there.
func act(what uint64) func(*injection) error {
	return func(x *injection) error {
		x.ft.ask(what)
		within(3*time.Millisecond, func() bool { return get(&x.ft.books.action) == 0 || x.state() == 't' })
		return nil
	}
}

// kill signals a task.
func (x *injection) kill(task *int32, sig unix.Signal) error {
	if !within(waitLimit, func() bool { return atomic.LoadInt32(task) != 0 }) {
		return errors.New("no task")
	}
	return unix.Kill(int(atomic.LoadInt32(task)), sig)
}

func (x *injection) signal() error {
	x.ft.want.usr1++
	return unix.Tgkill(x.pid, x.tid, unix.SIGUSR1)
}

// queue sends real-time signals with the next numbers.
func (x *injection) queue(n int) error {
	for range n {
		x.ft.want.rt++
		var info [128]byte
		const queued = -1 // SI_QUEUE
		sig := 34 + 1     // the C library's SIGRTMIN + 1
		*(*int32)(unsafe.Pointer(&info[0])) = int32(sig)
		*(*int32)(unsafe.Pointer(&info[8])) = queued
		*(*int32)(unsafe.Pointer(&info[16])) = int32(os.Getpid())
		*(*int32)(unsafe.Pointer(&info[20])) = int32(os.Getuid())
		*(*int32)(unsafe.Pointer(&info[24])) = int32(x.ft.want.rt)
		_, _, e := syscall.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(x.pid), uintptr(x.tid), uintptr(sig),
			uintptr(unsafe.Pointer(&info)), 0, 0)
		if e != 0 {
			return e
		}
	}
	return nil
}

func (x *injection) state() byte { return taskState(x.pid, x.tid) }

// ended reports that the thread has ended by itself before the fault, as threads of a .NET
// program do.
func (x *injection) ended() bool {
	s := x.state()
	return x.ft == nil && (s == 0 || s == 'Z' || s == 'X')
}

func (x *injection) groupStop() error {
	if err := unix.Kill(x.pid, unix.SIGSTOP); err != nil {
		return err
	}
	if !within(waitLimit, func() bool { return x.state() == 'T' || x.ended() }) {
		return fmt.Errorf("no group stop: state %c", x.state())
	}
	return nil
}

// contAfterStop requires that the capture has left the group stop intact.
func (x *injection) contAfterStop() error {
	if !within(waitLimit, func() bool { return x.state() == 'T' || x.ended() }) {
		return fmt.Errorf("the group stop is over: state %c", x.state())
	}
	return unix.Kill(x.pid, unix.SIGCONT)
}

// debugger attaches another process to the thread, for ten milliseconds.
func (x *injection) debugger() error {
	x.dbg = exec.Command(faultProgram, "tracer", strconv.Itoa(x.tid), "10000")
	out, err := x.dbg.StdoutPipe()
	if err != nil {
		return err
	}
	if err := x.dbg.Start(); err != nil {
		return err
	}
	x.said, err = bufio.NewReader(out).ReadString('\n')
	return err
}

func (x *injection) debuggerFirst() error {
	if err := x.debugger(); err != nil || x.said != "yes\n" && !x.ended() {
		return fmt.Errorf("the debugger says %q, %w", x.said, err)
	}
	return nil
}

// debuggerEnds requires that exactly one tracer got the thread.
func (x *injection) debuggerEnds() error {
	if x.dbg == nil {
		return nil
	}
	if err := x.dbg.Wait(); err != nil {
		return err
	}
	free := x.step == stepSeize || x.step == stepDetached || x.f.before != nil
	if free != (x.said == "yes\n") && !x.ended() {
		return fmt.Errorf("the debugger says %q", x.said)
	}
	return nil
}

// newProgram waits until the exec is done.
func (x *injection) newProgram() error {
	b := x.ft.books
	gen := get(&x.ft.want.generation) + 1
	if !within(waitLimit, func() bool { return get(&b.generation) == gen && get(&b.victim) != 0 }) {
		return fmt.Errorf("no new program: generation %d, want %d\n%s", get(&b.generation), gen, states(x.pid))
	}
	put(&x.ft.want.generation, gen)
	return nil
}

// freezer is a control group that can be frozen.
type freezer struct {
	name, dir, file string
	on, off         string
	frozen          func(string) bool
	file2           string
	home            string // the group for the processes afterwards
}

// newFreezers makes the machine's freezers, and explains missing freezers.
func newFreezers() (v1, v2 *freezer, why []string) {
	name := "clrsnap-test-" + strconv.Itoa(os.Getpid())
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		switch {
		case f[2] == "cgroup2":
			dir := filepath.Join(f[1], name)
			err := os.Mkdir(dir, 0o755)
			if err == nil {
				if _, err = os.Stat(dir + "/cgroup.freeze"); err == nil {
					v2 = &freezer{name: "v2", dir: dir, file: "cgroup.freeze", on: "1", off: "0",
						file2: "cgroup.events", home: f[1],
						frozen: func(s string) bool { return strings.Contains(s, "frozen 1") }}
					continue
				}
			}
			why = append(why, "cgroup v2: "+err.Error())
		case f[2] == "cgroup" && strings.Contains(f[3], "freezer"):
			dir := filepath.Join(f[1], name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				why = append(why, "cgroup v1: "+err.Error())
				continue
			}
			v1 = &freezer{name: "v1", dir: dir, file: "freezer.state", on: "FROZEN", off: "THAWED",
				file2: "freezer.state", home: f[1],
				frozen: func(s string) bool { return strings.HasPrefix(s, "FROZEN") }}
		}
	}
	if v1 == nil {
		why = append(why, "no cgroup v1 freezer")
	}
	if v2 == nil {
		why = append(why, "no cgroup v2 freezer")
	}
	return v1, v2, why
}

func (c *freezer) write(file, text string) error {
	return os.WriteFile(filepath.Join(c.dir, file), []byte(text), 0)
}

func (c *freezer) add(pid int) error { return c.write("cgroup.procs", strconv.Itoa(pid)) }

// freeze waits a little: a thread in a ptrace stop may keep the group from becoming frozen.
func (c *freezer) freeze(int) {
	if c.write(c.file, c.on) == nil {
		within(3*time.Millisecond, func() bool {
			b, _ := os.ReadFile(filepath.Join(c.dir, c.file2))
			return c.frozen(string(b))
		})
	}
}

func (c *freezer) thaw(pid int) error {
	if err := c.write(c.file, c.off); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.home, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

func (c *freezer) remove() {
	if c != nil {
		_ = c.write(c.file, c.off)
		_ = os.Remove(c.dir)
	}
}
