package live

import (
	"bytes"
	"errors"

	"clrsnap/internal/procfs"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// CountThreads is the process's number of threads, without a list of the threads.
func (p *Process) CountThreads() (int, error) {
	n, err := p.Dir().CountTasks()
	if err != nil {
		return 0, p.explain(err)
	}
	return n, nil
}

// Threads lists the ids of the target's threads in the order of /proc.
func (p *Process) Threads() ([]int, error) {
	for try := 1; ; try++ {
		tids, err := p.Dir().Tasks()
		switch {
		case err == nil:
			return tids, nil
		case errors.Is(err, procfs.ErrExited) && p.Alive() == nil && try < 10:
			// The main thread is replaced: for a moment, no thread has the process's id.
		default:
			return nil, p.explain(err)
		}
	}
}

// Thread describes one thread.
func (p *Process) Thread(tid int) (target.ThreadInfo, error) {
	var buf [1024]byte
	b, err := p.readTask(tid, "stat", buf[:])
	if err != nil {
		return target.ThreadInfo{}, err
	}
	s, err := procfs.ParseStat(b)
	if err != nil {
		return target.ThreadInfo{}, &target.ThreadError{TID: tid, Err: err}
	}
	return target.ThreadInfo{TID: tid, Name: s.Comm, State: s.State, StartTime: s.Start}, nil
}

// ThreadWait describes a thread's wait, for a person to read.
type ThreadWait struct {
	Channel string // the kernel function in which the thread sleeps; "" unless known
	Running bool   // not blocked; the other fields are empty
	Syscall int64  // number of the system call; -1: none (a page fault, a stop)
	Args    [6]uint64
	RunTime uint64 // ns on a CPU so far; 0 where not counted
	Waited  uint64 // ns ready but not running
	Runs    uint64 // how often it was put on a CPU
}

// ThreadWait reads what a thread waits for. Unreadable parts stay empty.
func (p *Process) ThreadWait(tid int) (ThreadWait, error) {
	var buf [512]byte
	w := ThreadWait{Syscall: -1}
	b, err := p.readTask(tid, "schedstat", buf[:])
	if errors.Is(err, target.ErrThreadExited) {
		return w, err
	}
	times := procfs.ParseSchedstat(b)
	w.RunTime, w.Waited, w.Runs = uint64(times.Running), uint64(times.Ready), times.Runs
	if b, err := p.readTask(tid, "syscall", buf[:]); err == nil {
		l, blocked := procfs.ParseSyscall(b)
		w.Running = !blocked
		if blocked {
			w.Syscall, w.Args = l.Nr, l.Args
		}
	}
	if b, err := p.readTask(tid, "wchan", buf[:]); err == nil && !bytes.Equal(b, []byte("0")) {
		w.Channel = string(b)
	}
	return w, nil
}

// NSTid returns a thread's id in the innermost PID namespace of the target. The runtime inside a
// container knows its threads by these ids.
func (p *Process) NSTid(tid int) (int, error) {
	if p.nests == 0 {
		return tid, nil
	}
	s, err := p.taskStatus(tid)
	if err != nil {
		return 0, err
	}
	inside, ok := s.InnermostPID()
	if !ok {
		return 0, &target.ThreadError{TID: tid, Err: procfs.ErrFormat, Detail: "no NSpid line in its status"}
	}
	return inside, nil
}

func (p *Process) taskStatus(tid int) (procfs.Status, error) {
	var buf [2048]byte
	b, err := p.readTask(tid, "status", buf[:])
	if err != nil {
		return procfs.Status{}, err
	}
	s, err := procfs.ParseStatus(b)
	if err != nil {
		return s, &target.ThreadError{TID: tid, Err: err, Detail: "reading status"}
	}
	return s, nil
}

func (p *Process) readTask(tid int, name string, buf []byte) ([]byte, error) {
	b, err := p.Dir().ReadInto(procfs.TaskFile(tid, name), buf)
	if err == unix.ENOENT || err == unix.ESRCH {
		return nil, p.threadGone(tid)
	}
	if err != nil {
		return nil, &target.ThreadError{TID: tid, Err: err, Detail: "reading " + name}
	}
	return b, nil
}

// threadGone is target.ErrThreadExited, or ErrExited where the whole process has exited.
func (p *Process) threadGone(tid int) error {
	if err := p.Alive(); err != nil {
		return err
	}
	return &target.ThreadError{TID: tid, Err: target.ErrThreadExited}
}
