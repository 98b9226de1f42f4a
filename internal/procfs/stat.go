package procfs

import (
	"bytes"
	"fmt"
	"time"
)

// ClockTick is the unit of times in a Stat (USER_HZ in include/uapi/asm-generic/param.h).
const ClockTick = time.Second / 100

// Stat is the used part of /proc/PID/stat, and of a thread's (proc_pid_stat(5)).
type Stat struct {
	Comm    string // the name: any text
	State   byte   // R S D T t Z X I
	PPID    int
	Flags   uint64 // PF_… of include/linux/sched.h
	CPU     uint64 // clock ticks of all threads, including ended threads, in user and kernel mode
	Threads int
	Start   uint64 // clock ticks since boot
}

// KernelThread reports whether s describes a thread of the kernel.
func (s *Stat) KernelThread() bool {
	const pfKthread = 0x00200000 // PF_KTHREAD
	return s.Flags&pfKthread != 0
}

// Stat reads the stat of the process.
func (d Dir) Stat() (Stat, error) { return d.stat("stat") }

// TaskStat reads the stat of a thread.
func (d Dir) TaskStat(tid int) (Stat, error) { return d.stat(TaskFile(tid, "stat")) }

func (d Dir) stat(name string) (Stat, error) {
	b, err := d.ReadFile(name)
	if err != nil {
		return Stat{}, err
	}
	s, err := ParseStat(b)
	if err != nil {
		return Stat{}, fmt.Errorf("%s: %w", d.path(name), err)
	}
	return s, nil
}

// ParseStat parses a stat. The name stands in brackets and may itself contain brackets, blanks
// and newlines: the last bracket counts. The error is ErrFormat.
func ParseStat(b []byte) (Stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open || end+3 >= len(b) {
		return Stat{}, ErrFormat
	}
	s := Stat{Comm: string(b[open+1 : end]), State: b[end+2]}
	b = b[end+3:]
	for n := 4; n <= 22; n++ { // as proc_pid_stat(5) counts fields
		var field []byte
		if field, b = nextField(b); len(field) == 0 {
			return Stat{}, ErrFormat
		}
		ok := true
		switch n {
		case 4:
			s.PPID, ok = id(field)
		case 9:
			s.Flags, ok = number(field)
		case 14, 15:
			var used uint64
			used, ok = number(field)
			s.CPU += used
		case 20:
			s.Threads, ok = id(field)
		case 22:
			s.Start, ok = number(field)
		}
		if !ok {
			return Stat{}, ErrFormat
		}
	}
	return s, nil
}
