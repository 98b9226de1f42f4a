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

// Some processes can keep whoever looks at them waiting for ever (clrsnap.ErrMayBlock): a
// thread of ours that waits so cannot be ended by anything, and a process with such a thread
// does not end either. So nothing of them is touched by the command that a user has called
// and waits for. It starts itself once more, as a worker that can be given up, and is its
// guard from then on: it passes on what the worker writes, its status, and signals.

// guardVariable says which descriptors a worker has its guard at.
const guardVariable = "CLRSNAP_GUARD"

// worker is what a worker knows of its guard.
type worker struct {
	status *os.File // takes the exit status, in one byte
	orders *os.File // brings signals, in one byte each; ends when the guard does
}

// guardOf returns what the process has of a guard; nil: it is no worker.
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

// end tells the guard that the worker ends, which it may not be able to.
func (w *worker) end(status int) {
	if w != nil {
		_, _ = w.status.Write([]byte{byte(status)})
	}
}

// signals adds what the guard passes on to the signals that the worker gets itself: a terminal
// sends them to both. When the guard ends, the worker does.
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

// sameSignal is how far apart a signal and the same one from the guard can be.
const sameSignal = 100 * time.Millisecond

// wary returns an ErrMayBlock if a process can keep the command waiting for ever: this
// process, for its own files. A worker goes on all the same.
func (a *app) wary(pid int) error {
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
	// What we have inherited is not the worker's: it would stay open.
	_ = unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return exitFailure, fmt.Errorf("cannot start another clrsnap, which could be given up if it has to wait for ever: %w", err)
	}
	for _, f := range []*os.File{theirStatus, theirOrders, out.write, errs.write} {
		f.Close() // nil, too: where there is no pipe
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
		case sig := <-signals: // the second one ends this process, and so the worker
			_, _ = orders.Write([]byte{byte(sig.(syscall.Signal))})
		case result = <-said:
			// It has written everything, and ends now if it can.
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

// endsWithin is how long a worker has to end once it has said that it does.
const endsWithin = 200 * time.Millisecond

func exitStatus(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// relayed is what a worker writes to. A pipe of the user's would stay open as long as the
// worker: it gets one of ours, and we pass on what comes. So with a socket.
type relayed struct {
	write, read *os.File // of our pipe; nil: there is none
	done        sync.WaitGroup
}

// relay lets the worker write to f, and sets its end of it.
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
		o.read.Close() // where nobody reads any more, the worker's writes fail as ours do
	})
	return o, nil
}

// finish passes on what is there yet. The pipe does not end if the worker does not.
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

// unread is how many bytes lie in the pipe.
func (o *relayed) unread() (n int) {
	c, err := o.read.SyscallConn()
	if err != nil {
		return 0
	}
	_ = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}
