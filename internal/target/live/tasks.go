package live

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// tasks is our end of the tracer and the watchdog (task.go).
type tasks struct {
	sh     *shared
	stacks []byte
	ended  chan struct{} // closed when both have ended

	mu  sync.Mutex
	pid int // of the watchdog; 0 when the number may have been reused
}

const taskStack = 64 << 10 // bytes; the lowest page is a guard page

// startTasks starts the watchdog, which starts the tracer.
func startTasks(limit time.Duration) (*tasks, error) {
	stacks, err := unix.Mmap(-1, 0, 2*taskStack, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(stacks); i += taskStack {
		if err := unix.Mprotect(stacks[i:i+os.Getpagesize()], unix.PROT_NONE); err != nil {
			return nil, errors.Join(err, unix.Munmap(stacks))
		}
	}
	bottom := uintptr(unsafe.Pointer(&stacks[0]))
	w := &tasks{stacks: stacks, ended: make(chan struct{})}
	w.sh = &shared{parent: uintptr(os.Getpid()), stack: bottom + 2*taskStack, limit: int64(limit),
		begin: entry(beginTracer), run: entry(serve)}
	started := make(chan error)
	go w.keep(bottom+taskStack, started)
	if err := <-started; err != nil {
		return nil, errors.Join(err, unix.Munmap(stacks))
	}
	return w, nil
}

// keep starts the watchdog and waits for its end. keep occupies an OS thread, because the kernel
// kills the watchdog when the OS thread that made the watchdog ends.
func (w *tasks) keep(stack uintptr, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mask := setMask(^sigset(0))
	pid := cloneTask(taskFlags, stack, entry(beginWatchdog), entry(watch), w.sh)
	setMask(mask)
	if pid < 0 {
		started <- fmt.Errorf("clone: %w", syscall.Errno(-pid))
		return
	}
	w.pid = pid
	started <- nil
	w.await(pid, unix.WNOWAIT)
	w.mu.Lock()
	w.pid = 0
	w.mu.Unlock()
	w.await(pid, 0)
	awaitTask(int(atomic.LoadInt32(&w.sh.tracer)))
	close(w.ended)
}

func (w *tasks) await(pid, options int) {
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WALL|options, nil) == unix.EINTR {
	}
}

// awaitTask waits until the tracer has followed a watchdog that another process killed: until
// then the tracer may have a thread stopped, and writes to our memory.
func awaitTask(pid int) {
	dir, err := procfs.Open(pid)
	if err != nil {
		return
	}
	defer dir.Close()
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Microsecond) {
		s, err := dir.Stat()
		if err != nil || s.State == 'Z' || s.State == 'X' || s.Comm != "clrsnap-trace" {
			return
		}
	}
}

// request makes the tracer perform the request in sh. It calls stuck every few milliseconds, to
// learn whether waiting has become useless. It calls meanwhile while threads are held.
func (w *tasks) request(stuck func() bool, meanwhile func()) (outcome uint32, err error) {
	sh := w.sh
	atomic.StoreUint32(&sh.giveUp, 0)
	seq := atomic.AddUint32(&sh.posted, 1)
	futexWake(&sh.posted)
	if atomic.LoadUint32(&sh.asleep) != 0 {
		w.rouse()
	}
	limit := time.Duration(sh.stopLimit+sh.allLimit+sh.hold) + tasksLimit
	for begin, rounds := time.Now(), 0; ; rounds++ {
		done := atomic.LoadUint32(&sh.done)
		if done == seq {
			return atomic.LoadUint32(&sh.outcome), nil
		}
		if meanwhile != nil && atomic.LoadUint32(&sh.held) != 0 {
			meanwhile()
			meanwhile = nil
			continue
		}
		if meanwhile != nil {
			w.sleep(&sh.held, 0, 5*time.Millisecond)
		} else {
			w.sleep(&sh.done, done, 5*time.Millisecond)
		}
		if rounds == 0 {
			continue
		}
		select {
		case <-w.ended:
			if atomic.LoadUint32(&sh.done) != seq {
				return outcomeDied, nil
			}
		default:
		}
		if stuck() {
			atomic.StoreUint32(&sh.giveUp, 1)
		}
		if time.Since(begin) > limit {
			return 0, errTasksStuck
		}
	}
}

// tasksLimit is the additional wait for a tracer that SIGKILL does not end: a task in
// uninterruptible sleep cannot be killed.
const tasksLimit = 5 * time.Second

var errTasksStuck = errors.New("the tracer hangs in the kernel and cannot be ended")

func (w *tasks) sleep(p *uint32, v uint32, d time.Duration) {
	futexSleep(p, v, d) // the caller checks *p again in any case
}

func (w *tasks) rouse() {
	atomic.AddUint32(&w.sh.prod, 1)
	futexWake(&w.sh.prod)
}

func (w *tasks) alive() bool {
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}

// stop ends both tasks and reports whether they have ended.
func (w *tasks) stop() bool {
	atomic.StoreUint32(&w.sh.quit, 1)
	w.rouse()
	for _, limit := range []time.Duration{time.Second, time.Second} {
		select {
		case <-w.ended:
			_ = unix.Munmap(w.stacks) // cannot fail: the mapping is ours
			return true
		case <-time.After(limit):
			w.kill()
		}
	}
	return false
}

func (w *tasks) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pid != 0 {
		_ = unix.Kill(w.pid, unix.SIGKILL) // or the watchdog has just ended
	}
}

// cpu is the CPU time of both tasks.
func (w *tasks) cpu() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pid == 0 {
		return 0
	}
	return processCPU(w.pid) + processCPU(int(atomic.LoadInt32(&w.sh.tracer)))
}
