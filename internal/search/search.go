package search

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"clrsnap/internal/hung"
	"clrsnap/internal/locate"
	"clrsnap/internal/mounts"
	"clrsnap/internal/procfs"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// search is the state of a search.
type search struct {
	ctx  context.Context // of the search alone
	out  []snapshot.Found
	late []lateLook
	end  time.Time

	// A late look goes on while the next look runs, so the following fields are safe for concurrent use.
	users sync.Map // names of users, by id
	other sync.Map // executables without a runtime (mounts.ID)
	hosts sync.Map // processes with a file named like the runtime's, by id
}

// A look is the result for a process.
type look struct {
	found    snapshot.Found
	dotNet   bool // the process belongs on the list
	mayBlock bool // the process was not touched
}

// lateLook is a process that keeps us waiting.
type lateLook struct {
	pid  int
	done chan look
}

// lookAt looks at processes, one after the other. Unless touch is set, it does not touch processes that can block the
// search for ever, and returns them.
func (s *search) lookAt(pids []int, touch bool) (mayBlock []int) {
	l := &looker{search: s, touch: touch}
	for _, pid := range pids {
		if s.ctx.Err() != nil {
			return mayBlock
		}
		if len(s.late) == maxLate || time.Now().After(s.end) {
			s.list(pid, errNoTime)
			continue
		}
		done := make(chan look, 1)
		go func(l *looker) { done <- l.look(pid) }(l)
		r, ok := s.await(done)
		if !ok {
			s.late = append(s.late, lateLook{pid, done})
			l = &looker{search: s, touch: touch}
			continue
		}
		if r.mayBlock {
			mayBlock = append(mayBlock, pid)
		}
		s.take(r)
	}
	return mayBlock
}

// await waits for the end of a look. It gives up, with ok false, if the look waits for longer than patience, or the
// time for all looks is used up.
func (s *search) await(done <-chan look) (r look, ok bool) {
	for {
		wait := time.NewTimer(min(patience/time.Duration(len(s.late)+1), max(time.Until(s.end), 0)))
		select {
		case r := <-done:
			wait.Stop()
			return r, true
		case <-wait.C:
		}
		if waits, _, err := hung.Threads(); err != nil || len(waits) > len(s.late) || time.Now().After(s.end) {
			return look{}, false
		}
	}
}

func (s *search) take(r look) {
	if r.dotNet {
		s.out = append(s.out, r.found)
	}
}

// awaitLate gives late looks the rest of the time.
func (s *search) awaitLate() {
	end := time.NewTimer(min(time.Until(s.end), moreTime))
	defer end.Stop()
	over := false
	for _, w := range s.late {
		if !over {
			select {
			case r := <-w.done:
				s.take(r)
				continue
			case <-end.C:
				over = true
			}
		}
		select {
		case r := <-w.done:
			s.take(r)
		default:
			s.list(w.pid, errNoAnswer)
		}
	}
}

// list lists an abandoned process, if it looks like .NET. It reads only files of /proc outside the process's memory.
func (s *search) list(pid int, why error) {
	dir, err := procfs.Open(pid)
	if err != nil { // the process has ended
		return
	}
	defer dir.Close()
	if _, host := s.hosts.Load(pid); !host && !dotNetThreads(dir) {
		return
	}
	f := s.described(dir, nil)
	f.Err = why
	s.out = append(s.out, f)
}

// looker looks at one process at a time.
type looker struct {
	*search
	touch   bool // read processes that can block us as well
	checker mounts.Checker
	buf     []byte
}

// readMaps reads the list of mappings. The list is valid until the next call.
func (l *looker) readMaps(dir procfs.Dir) ([]byte, error) {
	const usual = 64 << 10
	if l.buf == nil {
		l.buf = make([]byte, 0, usual)
	}
	maps, err := dir.ReadInto("maps", l.buf)
	if cap(maps) <= 1<<20 && maps != nil {
		l.buf = maps[:0]
	}
	return maps, err
}

// look finds out whether a process runs .NET, and then describes the process.
func (l *looker) look(pid int) look {
	dir, err := procfs.Open(pid)
	if err != nil { // the process has ended
		return look{}
	}
	defer dir.Close()
	maps, err := l.readMaps(dir)
	switch {
	case errors.Is(err, os.ErrPermission), errors.Is(err, procfs.ErrTooLong):
		if !dotNetThreads(dir) {
			return look{}
		}
		f := l.described(dir, commandLine(dir))
		if f.Err = openError(dir); f.Err == nil {
			f.Err = err
		}
		return look{found: f, dotNet: true}
	case err != nil || len(maps) == 0: // the process has ended, or is the kernel's own
		return look{}
	}
	host := bytes.Contains(maps, []byte("/libcoreclr.so\n")) ||
		bytes.Contains(maps, []byte("/libcoreclr.so (deleted)\n"))
	if host {
		l.hosts.Store(pid, true)
	}
	if !l.touch && l.checker.Check(dir, maps) != nil {
		return look{mayBlock: true}
	}
	id, _ := mounts.Stat(dir.FD(), "exe") // zero after an error
	if _, other := l.other.Load(id); other && !host {
		return look{}
	}
	r, err := runtimeIn(dir)
	other := errors.Is(err, live.ErrNoProcess) || errors.Is(err, live.ErrZombie) || errors.Is(err, live.ErrArch)
	if errors.Is(err, locate.ErrNotDotNet) || r == nil && other {
		if errors.Is(err, locate.ErrNotDotNet) && id != (mounts.ID{}) {
			l.other.Store(id, true)
		}
		return look{}
	}
	if r == nil && !dotNetThreads(dir) {
		return look{}
	}
	f := l.described(dir, commandLine(dir))
	f.Err = err
	if r != nil {
		f.Runtime = session.DescribeRuntime(r)
	}
	return look{found: f, dotNet: true}
}

// muxer is the file name of the dotnet command.
const muxer = "dotnet"

// described describes the process without its memory. Without a command line, the process's name takes its place.
func (s *search) described(dir procfs.Dir, args []string) snapshot.Found {
	f := snapshot.Found{PID: dir.PID(), UID: -1, Command: procfs.JoinArgs(args)}
	if exe, err := dir.Readlink("exe"); err == nil && len(args) > 0 && path.Base(exe) == muxer {
		args[0] = exe // whatever name the caller used
	}
	program, rest := snapshot.ProgramOf(args)
	f.Program, f.Arguments = program, arguments(rest)
	status, err := dir.Status()
	if err != nil {
		return f
	}
	name := "[" + strings.TrimSpace(status.Name) + "]"
	f.Command, f.Program = cmp.Or(f.Command, name), cmp.Or(f.Program, name)
	f.UID = status.UID.Effective
	f.User = s.user(f.UID)
	if stat, err := dir.Stat(); err == nil {
		f.Threads, f.RSS = stat.Threads, status.RSS
		f.Age, f.CPU = max(live.Age(stat.Start), 0), time.Duration(stat.CPU)*procfs.ClockTick
	}
	return f
}

// maxArguments bounds the text of a program's arguments, in bytes.
const maxArguments = 4 << 10

// arguments is the beginning of some arguments, with a blank between two.
func arguments(args []string) string {
	var b strings.Builder
	for _, arg := range args {
		if b.Len() >= maxArguments {
			break
		}
		b.WriteString(" " + arg[:min(len(arg), maxArguments)])
	}
	s := strings.TrimSpace(b.String())
	if len(s) <= maxArguments {
		return s
	}
	return strings.ToValidUTF8(s[:maxArguments], "") + "…"
}

// commandLine is the command line that a process claims to have; nil if it cannot be read.
func commandLine(dir procfs.Dir) []string {
	args, err := dir.Args()
	if err != nil {
		return nil
	}
	return args
}

func (s *search) user(uid int) string {
	if name, ok := s.users.Load(uid); ok {
		return name.(string)
	}
	name := strconv.Itoa(uid)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	s.users.Store(uid, name)
	return name
}

// Processes lists the visible .NET processes, by process id. If nonBlocking, it does not touch processes that can
// block a reader for ever, and returns their ids as left. When ctx ends, the result has the processes found by then,
// and the error is the error of ctx.
func Processes(ctx context.Context, nonBlocking bool) (found []snapshot.Found, left []int, err error) {
	if err := live.CheckProc(live.AllProcesses); err != nil {
		return nil, nil, err
	}
	pids, err := procfs.Processes()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list the processes: %w", err)
	}
	takeTurns(pids)
	s := &search{ctx: ctx, end: time.Now().Add(allTime)}
	mayBlock := s.lookAt(pids, false)
	if nonBlocking {
		left = mayBlock
	} else {
		s.lookAt(mayBlock, true)
	}
	s.awaitLate()
	slices.SortFunc(s.out, func(a, b snapshot.Found) int { return a.PID - b.PID })
	return s.out, left, ctx.Err()
}

// takeTurns orders processes so that users take turns. So a user with many processes does not use up the time of
// other users' processes.
func takeTurns(pids []int) {
	turn, met := map[int]int{}, map[int]int{}
	for _, pid := range pids {
		if uid, ok := procfs.Owner(pid); ok {
			turn[pid] = met[uid]
			met[uid]++
		}
	}
	slices.SortStableFunc(pids, func(a, b int) int { return turn[a] - turn[b] })
}
