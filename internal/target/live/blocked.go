package live

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"clrsnap/internal/procfs"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// TryBlocked captures a thread that is blocked, without stopping it and so
// without any effect on it. Only IP and SP of the Context are known. The error
// is ErrNotBlocked where the thread runs, or ran meanwhile.
//
// Why the copy is good. The kernel counts how often a thread was put on a
// CPU (pcount of struct sched_info, the third number of schedstat) and raises
// the count in sched_info_arrive, before the thread executes anything.
//
//  1. Read schedstat.
//  2. Read /proc/<pid>/task/<tid>/syscall. The kernel answers with a stack
//     pointer only if wait_task_inactive found the thread off every CPU,
//     blocked, both before and after it collected the registers
//     (task_current_syscall in lib/syscall.c). So there is an instant in this
//     step at which the thread was not running.
//  3. Copy the stack and the head.
//  4. Read schedstat again.
//
// Had the thread executed one instruction between the instant in 2 and the end
// of 3, it would have been put on a CPU in between, and the count in 4
// would be greater than in 1. The count is written before, and the switch to
// the thread is a full memory barrier, so a copy that sees what the thread wrote
// is followed by a read that sees the count. Equal lines therefore prove that
// the thread has not run; comparing the whole lines, with both times in
// nanoseconds, also rules out that two threads (an execve gives the id of the
// main thread to another one) agree by accident. Only a thread itself changes
// its stack; others may write to variables there that they were given pointers
// to, which is no different while a thread is stopped.
//
// The capture's Proof is the line. As long as schedstat says the same, what was
// captured is what the thread still is: see StillBlocked and CaptureAll.
func (p *Process) TryBlocked(req *target.Request, out *target.Capture) error {
	if p.closed.Load() {
		return ErrClosed
	}
	p.blocked.mu.Lock()
	defer p.blocked.mu.Unlock()
	return p.blocked.capture(p, req, out)
}

// StillBlocked reports whether a thread has not run since its latest capture by TryBlocked:
// schedstat shows the same line, so stack and registers are the same too. Otherwise ran is the
// time since then in which the thread ran, or was ready without a CPU; 0 if not known.
func (p *Process) StillBlocked(tid int) (still bool, ran time.Duration) {
	if p.closed.Load() {
		return false, 0
	}
	p.blocked.mu.Lock()
	defer p.blocked.mu.Unlock()
	last, ok := p.blocked.proofs[tid]
	if !ok {
		return false, 0
	}
	var buf [maxProof]byte
	b, err := p.blocked.schedstat(p, tid, buf[:])
	if err != nil {
		return false, 0
	}
	if string(b) == string(last) {
		return true, 0
	}
	p.blocked.ran, p.blocked.line = tid, append(p.blocked.line[:0], b...)
	now, then := procfs.ParseSchedstat(b), procfs.ParseSchedstat([]byte(last))
	return false, max(0, now.Running+now.Ready-then.Running-then.Ready)
}

// Holds reports whether a thread has not run since the capture with the given proof.
func (p *Process) Holds(tid int, proof target.Proof) bool {
	p.blocked.mu.Lock()
	defer p.blocked.mu.Unlock()
	var buf [maxProof]byte
	b, err := p.blocked.schedstat(p, tid, buf[:])
	return err == nil && proof != "" && string(b) == string(proof)
}

// RunCount returns a thread's current schedstat line; "" if not known.
func (p *Process) RunCount(tid int) target.Proof {
	p.blocked.mu.Lock()
	defer p.blocked.mu.Unlock()
	var buf [maxProof]byte
	b, err := p.blocked.schedstat(p, tid, buf[:])
	if err != nil || bytes.HasPrefix(b, []byte("0 0 0")) {
		return ""
	}
	return target.Proof(b)
}

// NotRunSince reports whether a thread has certainly not run since RunCount returned count. The
// thread must be blocked now: while a thread is on a CPU, schedstat changes only from time to
// time. TryBlocked gives the reasons. At the instant when the thread is off every CPU, the kernel
// has not put the thread on a CPU since RunCount. Had the thread been on a CPU at RunCount, its
// running time would have changed.
func (p *Process) NotRunSince(tid int, count target.Proof) bool {
	if p.closed.Load() || count == "" {
		return false
	}
	p.blocked.mu.Lock()
	defer p.blocked.mu.Unlock()
	r := &p.blocked
	var sched [maxProof]byte
	f, s, err := r.begin(p, tid, sched[:])
	if err != nil {
		return false
	}
	if r.files[tid] != f {
		defer f.close()
	}
	if string(s) != string(count) {
		return false
	}
	var buf [256]byte
	b, err := preadAll(f.syscall, buf[:])
	if err != nil {
		return false
	}
	if _, blocked := procfs.ParseSyscall(b); !blocked {
		return false
	}
	s, err = preadAll(f.schedstat, sched[:])
	return err == nil && string(s) == string(count)
}

// Call returns the system call that a thread is blocked in now; false: the thread is not blocked,
// or the call is not known.
func (p *Process) Call(tid int) (procfs.Syscall, bool) {
	if p.closed.Load() {
		return procfs.Syscall{}, false
	}
	var buf [256]byte
	b, err := p.readTask(tid, "syscall", buf[:])
	if err != nil {
		return procfs.Syscall{}, false
	}
	return procfs.ParseSyscall(b)
}

// Times reads the scheduler's counts of a thread; false if not known.
func (p *Process) Times(tid int) (times procfs.Schedstat, ok bool) {
	p.blocked.mu.Lock()
	defer p.blocked.mu.Unlock()
	var buf [maxProof]byte
	b, err := p.blocked.schedstat(p, tid, buf[:])
	if err != nil {
		return times, false
	}
	times = procfs.ParseSchedstat(b)
	return times, times.Running > 0
}

// maxProof bounds a line of schedstat (three numbers), in bytes.
const maxProof = 64

// maxBlockedFiles bounds the number of threads with files kept open, two for each thread. Half of
// the files that our process may open is a second bound. The files of further threads are opened
// for each capture.
const maxBlockedFiles = 4096

func blockedFilesLimit() int {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 64
	}
	return int(min(l.Cur/2/2, maxBlockedFiles))
}

// maxProofs bounds the number of remembered proofs.
const maxProofs = 1 << 16

// blockedReader keeps the files and proofs of TryBlocked between captures.
type blockedReader struct {
	mu     sync.Mutex
	files  map[int]blockedFiles
	limit  int                  // of files, in threads
	ran    int                  // the thread that StillBlocked has just found to have run; 0: none
	line   []byte               // the schedstat line of thread ran
	proofs map[int]target.Proof // each thread's latest proof
	c      copier
}

// blockedFiles are one thread's files for TryBlocked. The files stay open, so the reads are here:
// procfs, whose parsers serve here too, opens a file for each reading.
type blockedFiles struct{ schedstat, syscall int }

func (f blockedFiles) close() {
	unix.Close(f.schedstat)
	unix.Close(f.syscall)
}

func (r *blockedReader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.files {
		f.close()
	}
	r.files, r.proofs = nil, nil
}

func (r *blockedReader) capture(p *Process, req *target.Request, out *target.Capture) error {
	if err := r.c.prepare(p, req, out); err != nil {
		return err
	}
	var sched [maxProof]byte
	f, s1, again, err := r.first(p, req.TID, sched[:])
	if err != nil {
		return err
	}
	if r.files[req.TID] != f {
		defer f.close()
	}
	if len(s1) == 0 || bytes.HasPrefix(s1, []byte("0 0 0")) {
		return ErrNoSchedstat
	}
	var buf [256]byte
	b, err := preadAll(f.syscall, buf[:])
	if err != nil {
		return r.failed(p, req.TID, err)
	}
	l, blocked := procfs.ParseSyscall(b)
	if !blocked {
		return &target.ThreadError{TID: req.TID, Err: ErrNotBlocked}
	}
	r.c.copy(uintptr(req.TID), l.SP)
	var after [maxProof]byte
	s2, err := preadAll(f.schedstat, after[:])
	if err != nil {
		return r.failed(p, req.TID, err)
	}
	if !bytes.Equal(s1, s2) && again {
		return r.capture(p, req, out)
	}
	if !bytes.Equal(s1, s2) {
		return &target.ThreadError{TID: req.TID, Err: ErrNotBlocked, Detail: "it ran meanwhile"}
	}
	contextSP(&out.Context, l.PC, l.SP)
	if l.Nr >= 0 {
		contextArgs(&out.Context, l.Args)
	}
	out.SyscallNr, out.SyscallArgs = l.Nr, l.Args
	out.Pause, out.Stopped, out.Waited, out.Ready = 0, false, 0, false
	out.Proof = r.prove(req.TID, s1)
	return r.c.deliver(req, out)
}

// prove remembers a thread's proof.
func (r *blockedReader) prove(tid int, line []byte) target.Proof {
	if last := r.proofs[tid]; string(last) == string(line) {
		return last
	}
	if r.proofs == nil || len(r.proofs) >= maxProofs {
		r.proofs = map[int]target.Proof{}
	}
	proof := target.Proof(line)
	r.proofs[tid] = proof
	return proof
}

// first is begin for a capture. If StillBlocked has just read schedstat, first returns that line
// and sets again: a capture without proof must then be repeated.
func (r *blockedReader) first(p *Process, tid int, buf []byte) (f blockedFiles, line []byte, again bool, err error) {
	ran := r.ran
	r.ran = 0
	if f, ok := r.files[tid]; ok && ran == tid {
		return f, r.line, true, nil
	}
	f, line, err = r.begin(p, tid, buf)
	return f, line, false, err
}

// begin returns a thread's files and the first reading of schedstat. The caller closes the files
// if r does not keep them. Files of an ended thread cannot be read even if its id is reused, so
// begin opens the files again on an error, once.
func (r *blockedReader) begin(p *Process, tid int, buf []byte) (blockedFiles, []byte, error) {
	if f, ok := r.files[tid]; ok {
		if b, err := preadAll(f.schedstat, buf); err == nil {
			return f, b, nil
		}
		r.forget(tid)
	}
	f, err := openBlocked(p, tid)
	if err != nil {
		return f, nil, r.failed(p, tid, err)
	}
	b, err := preadAll(f.schedstat, buf)
	if err != nil {
		f.close()
		return f, nil, r.failed(p, tid, err)
	}
	r.keep(tid, f)
	return f, b, nil
}

// keep keeps a thread's files open. At the limit, keep mostly declines. Sometimes keep closes
// another thread's files instead, because that thread may have ended.
func (r *blockedReader) keep(tid int, f blockedFiles) {
	if r.files == nil {
		r.files, r.limit = map[int]blockedFiles{}, blockedFilesLimit()
	}
	if len(r.files) >= r.limit {
		const seldom = 16
		if rand.IntN(seldom) != 0 {
			return
		}
		for old := range r.files { // any
			r.closeFiles(old)
			break
		}
	}
	r.files[tid] = f
}

// openBlocked opens both files through one directory, so both files belong to the same thread.
func openBlocked(p *Process, tid int) (f blockedFiles, err error) {
	dir, err := unix.Openat(p.dir, "task/"+strconv.Itoa(tid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return f, err
	}
	defer unix.Close(dir)
	if f.schedstat, err = unix.Openat(dir, "schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return f, noFile(dir, err)
	}
	if f.syscall, err = unix.Openat(dir, "syscall", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		unix.Close(f.schedstat)
		return f, noFile(dir, err)
	}
	return f, nil
}

// noFile distinguishes a kernel without the file from an exited thread.
func noFile(dir int, err error) error {
	if err == unix.ENOENT && unix.Faccessat(dir, "stat", unix.F_OK, 0) == nil {
		return ErrNoSchedstat
	}
	return err
}

// schedstat reads a thread's line, from an open file where possible. Everybody may read
// schedstat. Reading syscall takes the file's owner or CAP_DAC_READ_SEARCH; without that right no
// file is kept open.
func (r *blockedReader) schedstat(p *Process, tid int, buf []byte) ([]byte, error) {
	if p.closed.Load() {
		return nil, ErrClosed
	}
	f, b, err := r.begin(p, tid, buf)
	switch {
	case isDenied(err):
		return p.readTask(tid, "schedstat", buf)
	case err == nil && r.files[tid] != f:
		f.close()
	}
	return b, err
}

func (r *blockedReader) forget(tid int) {
	r.closeFiles(tid)
	delete(r.proofs, tid)
}

func (r *blockedReader) closeFiles(tid int) {
	if f, ok := r.files[tid]; ok {
		f.close()
		delete(r.files, tid)
	}
}

func (r *blockedReader) failed(p *Process, tid int, err error) error {
	r.forget(tid)
	switch {
	case errors.Is(err, ErrNoSchedstat):
		return err
	case err == unix.ESRCH || err == unix.ENOENT:
		return p.threadGone(tid)
	}
	return &target.ThreadError{TID: tid, Err: err, Detail: "reading its state"}
}

// preadAll reads a short file of /proc from its start, so the kernel generates the content again.
func preadAll(fd int, buf []byte) ([]byte, error) {
	for {
		n, err := pread(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		return buf[:max(n, 0)], err
	}
}
