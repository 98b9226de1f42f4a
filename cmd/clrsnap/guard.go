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

// Reading some processes can block for ever (clrsnap.ErrMayBlock). Not even SIGKILL ends a thread that is blocked in
// such a system call, nor the thread's process. So the command that the user has called does not touch the blocking
// process itself. The command starts another clrsnap, the worker, and becomes the worker's guard: the guard passes on
// the worker's output and exit status, and passes signals to the worker. If the worker blocks, the guard ends alone.

// guardVariable names the environment variable that makes clrsnap a worker. Its value is the descriptors of
// worker.status and worker.orders.
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

// signals returns the signals of the worker: the worker's own signals, and the signals from the guard. A signal from a
// terminal comes both ways, and counts once. When the guard ends, the worker ends.
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

// withoutCopies passes on signals, but drops a second signal that comes at once: from the guard as well, or from
// timeout(1), which sends a signal to the command and another to the command's process group.
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

// mayBlock returns an ErrMayBlock if reading the memory or files of a process can block for ever. The process can be
// this process, for its own files. In a worker, mayBlock returns nil.
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
	// The worker must not inherit other descriptors: the descriptors would stay open as long as the worker runs.
	_ = unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return exitFailure,
			fmt.Errorf("cannot start a second clrsnap to read a process that may block: %w",
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
		case sig := <-signals: // a second signal ends this process, and so the worker
			_, _ = orders.Write([]byte{byte(sig.(syscall.Signal))})
		case result = <-said:
			// The worker has written everything, and ends now unless a thread is blocked.
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

// endsWithin is how long a worker may take to end after the worker has told its status.
const endsWithin = 200 * time.Millisecond

func exitStatus(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// relayed is an output of a worker. If the user's output is a pipe or a socket, the worker does not get the output,
// because the output would stay open as long as a blocked worker. The worker gets a pipe of the guard, and the guard
// passes on the bytes.
type relayed struct {
	write, read *os.File // the ends of the guard's pipe; nil: the worker has the user's output
	done        sync.WaitGroup
}

// relay sets theirs to the file that a worker has to write to, so that the worker's output gets to f.
func relay(theirs *io.Writer, f *os.File) (*relayed, error) {
	o := &relayed{}
	*theirs = f
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return o, nil // f is closed
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

// finish passes on the rest in the pipe. finish does not wait for the end of the pipe: there is no end while the worker
// is blocked.
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
