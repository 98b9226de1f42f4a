package live

import (
	"bytes"
	"errors"
	"strconv"

	"clrsnap/internal/procdir"

	"golang.org/x/sys/unix"
)

// ThreadInfo describes a thread as the kernel sees it.
type ThreadInfo struct {
	TID       int
	Name      string
	State     byte   // R S D T t Z X I, as proc_pid_stat(5) explains them
	StartTime uint64 // clock ticks since boot
}

// CountThreads returns how many threads the process has, without listing them: the kernel
// shows the count as links of the directory (proc_task_getattr in fs/proc/base.c).
func (p *Process) CountThreads() (int, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(p.dir, "task", &st, 0); err != nil {
		return 0, p.explain(err)
	}
	return int(st.Nlink) - 2, nil
}

// Threads lists the ids of the target's threads in the order of /proc.
func (p *Process) Threads() ([]int, error) {
	fd, err := unix.Openat(p.dir, "task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, p.explain(err)
	}
	defer unix.Close(fd)
	var tids []int
	var names []string
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, p.explain(err)
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if tid, err := strconv.Atoi(name); err == nil {
				tids = append(tids, tid)
			}
		}
	}
	if len(tids) == 0 {
		return nil, procdir.Exited(p.pid)
	}
	return tids, nil
}

// Thread describes one thread.
func (p *Process) Thread(tid int) (ThreadInfo, error) {
	var buf [1024]byte
	b, err := p.readTask(tid, "stat", buf[:])
	if err != nil {
		return ThreadInfo{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return ThreadInfo{}, &ThreadError{TID: tid, Err: err}
	}
	return ThreadInfo{TID: tid, Name: s.comm, State: s.state, StartTime: s.start}, nil
}

// ThreadWait says what a thread waits for, for a person to read.
type ThreadWait struct {
	Channel string // function of the kernel that it sleeps in; "" unless known
	Running bool   // it is not blocked, and the rest is empty
	Syscall int64  // number of the system call; -1: none (a page fault, a stop)
	Args    [6]uint64
	RunTime uint64 // ns on a CPU so far; 0 where not counted
	Waited  uint64 // ns ready but not running
	Runs    uint64 // how often it was put on a CPU
}

// ThreadWait reads what a thread waits for. Parts that may not be read stay
// empty.
func (p *Process) ThreadWait(tid int) (ThreadWait, error) {
	var buf [512]byte
	w := ThreadWait{Syscall: -1}
	b, err := p.readTask(tid, "schedstat", buf[:])
	if errors.Is(err, ErrThreadExited) {
		return w, err
	}
	f, b := nextField(b)
	w.RunTime = parseUint(f)
	f, b = nextField(b)
	w.Waited = parseUint(f)
	f, _ = nextField(b)
	w.Runs = parseUint(f)
	if b, err := p.readTask(tid, "syscall", buf[:]); err == nil {
		l, blocked := parseSyscall(b)
		w.Running = !blocked
		if blocked {
			w.Syscall, w.Args = l.nr, l.args
		}
	}
	if b, err := p.readTask(tid, "wchan", buf[:]); err == nil && !bytes.Equal(b, []byte("0")) {
		w.Channel = string(b)
	}
	return w, nil
}

// NSTid returns the id that a thread has in the innermost PID namespace of the
// target. The runtime inside a container knows its threads by these.
func (p *Process) NSTid(tid int) (int, error) {
	if p.nests == 0 {
		return tid, nil
	}
	var buf [2048]byte
	b, err := p.readTask(tid, "status", buf[:])
	if err != nil {
		return 0, err
	}
	ids := parseStatus(b).nspid
	if len(ids) == 0 {
		return 0, &ThreadError{TID: tid, Err: errProcFormat, Detail: "no NSpid line in its status"}
	}
	return ids[len(ids)-1], nil
}

func (p *Process) readTask(tid int, name string, buf []byte) ([]byte, error) {
	b, err := readAt(p.dir, "task/"+strconv.Itoa(tid)+"/"+name, buf)
	if err == unix.ENOENT || err == unix.ESRCH {
		return nil, p.threadGone(tid)
	}
	if err != nil {
		return nil, &ThreadError{TID: tid, Err: err, Detail: "reading " + name}
	}
	return b, nil
}

// threadGone is ErrThreadExited, or ErrExited where the whole process has.
func (p *Process) threadGone(tid int) error {
	if err := p.Alive(); err != nil {
		return err
	}
	return &ThreadError{TID: tid, Err: ErrThreadExited}
}
