package live

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/mounts"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// Bounds on how long a request waits for threads to stop.
const (
	DefaultStopLimit = time.Second            // one thread
	DefaultAllLimit  = 100 * time.Millisecond // all threads of CaptureAll together
)

// Process is a live process. Several goroutines may call its methods; requests to stop threads
// are served one after the other.
type Process struct {
	// Set before a request; zero stands for the defaults.
	StopLimit, AllLimit time.Duration
	// Watchdog is how long a thread may be stopped, at least 2 ms. In a CaptureAll all threads
	// may be stopped for AllLimit longer. 0: DefaultWatchdog.
	Watchdog time.Duration
	// NoLook makes Look fail.
	NoLook bool

	pid   int
	start uint64 // clock ticks since boot: with the pid, the process's identity
	dir   int    // /proc/<pid>: stays bound to the process, not to its id
	pidfd int    // -1 where the kernel has no pidfds (before 5.3)
	nests int    // the number of PID namespaces from ours down to the process's

	lead    atomic.Int32 // a thread that has the address space; mostly the main thread
	noVM    atomic.Bool  // process_vm_readv is denied: /proc/<pid>/mem is used
	memOnce sync.Once
	memFD   int
	memErr  error

	mapsMu  sync.Mutex
	mapsBuf []byte
	spans   atomic.Pointer[[]span]

	traceMu   sync.Mutex
	tracer    *Tracer
	inside    bool   // do not even try a separate tracer task (test)
	unwatched string // why there is no watchdog
	let       atomic.Int64
	stops     atomic.Int64
	// tracingCPU is the CPU time of the ended tasks.
	tracingCPU time.Duration
	blocked    blockedReader
	looker     looker
	closed     atomic.Bool
}

// Open attaches to a process. It checks that the process can be read and stopped, without a stop.
// An error is an *AttachError with a remedy.
func Open(pid int) (*Process, error) { return openPID(pid, false) }

// OpenNonBlocking is Open, but refuses a process that could block its readers for ever. It
// touches nothing of such a process: the error is mounts.ErrMayBlock.
func OpenNonBlocking(pid int) (*Process, error) { return openPID(pid, true) }

func openPID(pid int, nonBlocking bool) (*Process, error) {
	if err := CheckProc(pid); err != nil {
		return nil, err
	}
	dir, err := procfs.Open(pid)
	if err != nil || pid <= 0 {
		dir.Close()
		return nil, missingError(pid)
	}
	return attach(dir, nonBlocking)
}

// OpenDir is Open for the process of dir, and never for a later process with the same number. dir
// remains the caller's.
func OpenDir(dir procfs.Dir) (*Process, error) {
	dir, err := dir.Dup()
	if err != nil {
		return nil, fmt.Errorf("cannot attach to %d: %w", dir.PID(), err)
	}
	return attach(dir, false)
}

// attach closes dir on an error.
func attach(dir procfs.Dir, nonBlocking bool) (*Process, error) {
	p := &Process{pid: dir.PID(), dir: dir.FD(), pidfd: -1, memFD: -1}
	p.lead.Store(int32(p.pid))
	if err := p.open(nonBlocking); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Process) open(nonBlocking bool) error {
	if err := p.identify(); err != nil {
		return err
	}
	err := p.readable(nonBlocking)
	for tries := 0; tries < 3 && isFault(err); tries++ {
		err = p.readable(nonBlocking) // the process has executed another program after its mappings were read
	}
	if err == nil {
		err = checkMachine(p.pid, p.dir)
	}
	var ae *AttachError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ae), errors.Is(err, mounts.ErrMayBlock):
		return err
	case errors.Is(err, ErrExited):
		return justExited(p.pid)
	case isDenied(err):
		return deniedError(p.Dir())
	}
	return fmt.Errorf("cannot attach to %d: %w", p.pid, err)
}

// identify makes sure that pid is a process.
func (p *Process) identify() error {
	st, su, err := p.readSelf()
	if err != nil {
		return p.unseen(err)
	}
	if err := checkKind(p.pid, &st, &su); err != nil {
		return err
	}
	p.start = st.Start
	p.nests = max(len(su.NSPID)-1, 0)
	if fd, err := unix.PidfdOpen(p.pid, 0); err == nil {
		p.pidfd = fd
	}
	// Otherwise the id may have been reused before the directory was opened.
	if st, _, err = p.readSelf(); err != nil {
		return p.unseen(err)
	}
	if st.State == 'Z' {
		p.relead()
	}
	return nil
}

// unseen explains why a process that /proc does not show cannot be attached to.
func (p *Process) unseen(err error) error {
	if errors.Is(err, ErrExited) {
		return justExited(p.pid)
	}
	return missingError(p.pid)
}

func (p *Process) readSelf() (st procfs.Stat, su procfs.Status, err error) {
	if st, err = p.Dir().Stat(); err == nil {
		su, err = p.Dir().Status()
	}
	return st, su, err
}

// readable returns nil if the process can be read.
func (p *Process) readable(nonBlocking bool) error {
	ms, text, err := p.readMappings()
	if err != nil {
		return err
	}
	if nonBlocking {
		if err := mayBlock(p.Dir(), text); err != nil {
			return err
		}
	}
	return p.probe(ms)
}

// isFault reports whether nothing is mapped at an address. The process's mem file says EIO.
func isFault(err error) bool { return errors.Is(err, unix.EFAULT) || errors.Is(err, unix.EIO) }

// probe reads a byte of memory: only a real read shows whether reading is allowed.
func (p *Process) probe(ms target.Mappings) error {
	var b [1]byte
	var err error
	for i := range ms {
		if ms[i].Perm&target.PermRead == 0 || ms[i].Path == "[vvar]" {
			continue
		}
		if err = p.ReadMemory(b[:], ms[i].Start); err == nil {
			return nil
		}
		if isDenied(err) {
			return err
		}
	}
	if err == nil {
		err = errors.New("it has no readable memory")
	}
	return err
}

// Dir is the process's directory in /proc, open until Close.
func (p *Process) Dir() procfs.Dir { return procfs.Of(p.dir, p.pid) }

// PID is the process id, in our PID namespace.
func (p *Process) PID() int { return p.pid }

// StartTime is when the process started, in clock ticks since boot.
func (p *Process) StartTime() uint64 { return p.start }

// Age is the time since the process started.
func (p *Process) Age() time.Duration { return Age(p.start) }

// Arch is the target's architecture.
func (p *Process) Arch() *arch.Arch { return hostArch }

// Alive returns nil while the opened process lives, else an ErrExited.
func (p *Process) Alive() error {
	if p.closed.Load() {
		return ErrClosed
	}
	if p.pidfd >= 0 {
		if ready(p.pidfd) {
			return procfs.Exited(p.pid)
		}
		return nil
	}
	if st, err := p.Dir().Stat(); err != nil || st.Start != p.start || ended(&st) {
		return procfs.Exited(p.pid)
	}
	return nil
}

// WaitExit waits until the process has exited, for at most limit, and reports whether the process
// has exited. It does not collect the exit status.
func (p *Process) WaitExit(limit time.Duration) bool {
	for end := time.Now().Add(limit); ; {
		if p.Alive() != nil {
			return true
		}
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		if p.pidfd < 0 {
			time.Sleep(min(left, 10*time.Millisecond))
			continue
		}
		fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, int(min(left, time.Second)/time.Millisecond)+1) // Alive checks the result
	}
}

// CPUTime is the CPU time of all threads of the process so far, including ended threads; 0 once
// the process has exited.
func (p *Process) CPUTime() time.Duration {
	if p.Alive() != nil {
		return 0
	}
	return processCPU(p.pid)
}

// processCPU reads the CPU clock of a process. The clock's id is made from the process id
// (clock_getcpuclockid(3)).
func processCPU(pid int) time.Duration {
	const clockSched = 2 // CPUCLOCK_SCHED of include/linux/posix-timers.h
	if pid <= 0 {
		return 0
	}
	return readClock(int32(^pid<<3 | clockSched))
}

// explain replaces a system call's error by ErrExited if the whole process has exited.
func (p *Process) explain(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		if exited := p.Alive(); exited != nil {
			return exited
		}
	}
	return err
}

// memPrefix is the path below /proc/<pid> of the address space's files.
func (p *Process) memPrefix() string {
	if lead := int(p.lead.Load()); lead != p.pid {
		return "task/" + strconv.Itoa(lead) + "/"
	}
	return ""
}

// relead chooses another thread for reading the address space. A main thread that has ended while
// other threads run on has no address space any more.
func (p *Process) relead() bool {
	tid, ok := p.Dir().LivingTask()
	return ok && p.lead.Swap(int32(tid)) != int32(tid)
}

// Close detaches from the process. No request may be in progress.
func (p *Process) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	p.traceMu.Lock()
	defer p.traceMu.Unlock()
	if p.tracer != nil {
		p.tracer.close()
		p.tracer = nil
	}
	p.blocked.close()
	p.looker.close()
	for _, fd := range []int{p.dir, p.pidfd, p.memFD} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return nil
}
