package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"clrsnap"

	"golang.org/x/sys/unix"
)

// Reading some processes can block for ever (clrsnap.ErrMayBlock). A thread that is blocked in
// such a system call cannot be ended, not even by SIGKILL, and neither can its process. So the
// command that the user has called does not touch such a process itself. It starts another
// clrsnap, the worker, and becomes its guard: it passes on the worker's output and exit status,
// and signals to the worker. If the worker blocks, the guard ends without it.

// guardVariable names the environment variable with which a guard tells its worker that it is
// one. Its value is the descriptors of worker.status and worker.orders.
const guardVariable = "CLRSNAP_GUARD"

// worker has a worker's connections to its guard.
type worker struct {
	status *os.File // for writing the exit status, in one byte
	orders *os.File // for reading signals, in one byte each; EOF: the guard has ended
}

// guardOf returns the connections to the guard; nil: the process is not a worker.
func guardOf() *worker {
	status, orders, ok := strings.Cut(os.Getenv(guardVariable), ",")
	s, err1 := strconv.Atoi(status)
	o, err2 := strconv.Atoi(orders)
	if !ok || err1 != nil || err2 != nil {
		return nil
	}
	os.Unsetenv(guardVariable)
	unix.CloseOnExec(s)
	unix.CloseOnExec(o)
	return &worker{os.NewFile(uintptr(s), "status"), os.NewFile(uintptr(o), "orders")}
}

// end tells the guard the exit status. The worker itself may not be able to end.
func (w *worker) end(status int) {
	if w != nil {
		_, _ = w.status.Write([]byte{byte(status)})
	}
}

// signals returns the signals of the worker: its own and those that the guard passes on. A
// signal from a terminal comes from both, and counts once. When the guard ends, so does the
// worker.
func (w *worker) signals(own <-chan os.Signal) chan os.Signal {
	passedOn := make(chan os.Signal, 2)
	go func() {
		var b [1]byte
		for {
			if n, err := w.orders.Read(b[:]); n == 0 || err != nil {
				_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
				return
			}
			passedOn <- syscall.Signal(b[0])
		}
	}()
	return withoutCopies(own, passedOn)
}

// withoutCopies passes on signals, but for those that come once more at once: from the guard as well, or from
// timeout(1), which sends one to the command and one to its process group.
func withoutCopies(own, passedOn <-chan os.Signal) chan os.Signal {
	once := make(chan os.Signal, 2)
	go func() {
		var before os.Signal
		var at time.Time
		for {
			var sig os.Signal
			select {
			case sig = <-own:
			case sig = <-passedOn:
			}
			if sig != before || time.Since(at) > sameSignal {
				once <- sig
			}
			before, at = sig, time.Now()
		}
	}()
	return once
}

// sameSignal is the longest time between a signal and its copy.
const sameSignal = 100 * time.Millisecond

// mayBlock returns an ErrMayBlock if reading the memory or files of a process can block for ever.
// The process can be this one, for its own files. In a worker, mayBlock returns nil.
func (a *app) mayBlock(pid int) error {
	if a.worker != nil {
		return nil
	}
	return clrsnap.MayBlock(pid)
}

// guard runs the command in a worker and returns its status.
func guard(args []string, stdout, stderr *os.File) (int, error) {
	status, theirStatus, err := os.Pipe()
	if err != nil {
		return exitFailure, err
	}
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return exitFailure, err
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.ExtraFiles = os.Stdin, []*os.File{theirStatus, theirOrders}
	cmd.Env = append(os.Environ(), guardVariable+"=3,4")
	out, err1 := relay(&cmd.Stdout, stdout)
	errs, err2 := relay(&cmd.Stderr, stderr)
	if err := errors.Join(err1, err2); err != nil {
		return exitFailure, err
	}
	// The worker must not inherit other descriptors: they would stay open as long as it.
	_ = unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return exitFailure,
			fmt.Errorf("cannot start a second clrsnap, which is needed to read a process that may block: %w",
				err)
	}
	for _, f := range []*os.File{theirStatus, theirOrders, out.write, errs.write} {
		f.Close() // a nil file means that there is no pipe
	}
	said, ended := make(chan int, 1), make(chan int, 1)
	go func() {
		var b [1]byte
		if n, _ := status.Read(b[:]); n == 1 {
			said <- int(b[0])
		}
	}()
	go func() {
		_ = cmd.Wait()
		ended <- exitStatus(cmd.ProcessState)
	}()
	result, over := 0, false
	for !over {
		select {
		case sig := <-signals: // a second one ends this process, and so the worker
			_, _ = orders.Write([]byte{byte(sig.(syscall.Signal))})
		case result = <-said:
			// It has written everything, and ends now unless a thread is blocked.
			select {
			case <-ended:
			case <-time.After(endsWithin):
			}
			over = true
		case result = <-ended:
			over = true
		}
	}
	out.finish()
	errs.finish()
	return result, nil
}

// endsWithin is how long a worker may take to end after it has told its status.
const endsWithin = 200 * time.Millisecond

func exitStatus(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// relayed is an output of a worker. If the user's output is a pipe or a socket, the worker does
// not get it, because it would stay open as long as a blocked worker. It gets a pipe of the
// guard's, and the guard passes on what comes.
type relayed struct {
	write, read *os.File // the ends of the guard's pipe; nil: the worker has the user's output
	done        sync.WaitGroup
}

// relay sets theirs to what a worker has to write to, so that its output gets to f.
func relay(theirs *io.Writer, f *os.File) (*relayed, error) {
	o := &relayed{}
	*theirs = f
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return o, nil // it is closed
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFIFO && kind != unix.S_IFSOCK {
		return o, nil
	}
	var err error
	if o.read, o.write, err = os.Pipe(); err != nil {
		return o, err
	}
	*theirs = o.write
	o.done.Go(func() {
		_, _ = io.Copy(f, o.read)
		o.read.Close() // if f's reader has closed it, the worker's writes must fail too
	})
	return o, nil
}

// finish passes on what is still in the pipe. It does not wait for the end of the pipe, which
// does not come while the worker is blocked.
func (o *relayed) finish() {
	if o.read == nil {
		return
	}
	for o.unread() > 0 {
		time.Sleep(time.Millisecond)
	}
	_ = o.read.SetReadDeadline(time.Now())
	o.done.Wait()
}

// unread returns how many bytes are in the pipe.
func (o *relayed) unread() (n int) {
	c, err := o.read.SyscallConn()
	if err != nil {
		return 0
	}
	_ = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}
