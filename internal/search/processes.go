// Package search finds the .NET processes of a machine.
package search

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/origin"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target/live"
)

// ErrNoAnswer: the process keeps its readers waiting.
var ErrNoAnswer = errors.New("the process keeps clrsnap waiting")

var (
	errNoAnswer = fmt.Errorf("%w: the memory or files of the process lie on a file system that does not answer: "+
		"make the file system answer or unmount it; /proc/PID/mountinfo has the mounts (look for fuse, nfs, cifs)",
		ErrNoAnswer)
	errNoTime = errors.New("not read, because other processes have used up the time: " +
		"try again, or give the process id")
)

// How long Processes waits for processes that keep it waiting. Processes goes on to the next process after patience,
// and collects late answers at the end.
const (
	patience = 100 * time.Millisecond // for the first late process; a half for the second, a third for the third …
	moreTime = time.Second            // for late answers, at the end
	allTime  = 3 * time.Second        // for all processes together
	maxLate  = 64                     // late processes with a simultaneous wait
)

// runtimeIn looks for the runtime of a process, through its mappings. With a runtime, the error is why the runtime
// cannot be read.
func runtimeIn(dir procfs.Dir) (*locate.Runtime, error) {
	p, err := live.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	e, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	r, err := e.OpenRuntime()
	if r == nil {
		return nil, err
	}
	return r, origin.Unreadable(err, origin.Running(p))
}

// openError is why a process cannot be opened.
func openError(dir procfs.Dir) error {
	p, err := live.OpenDir(dir)
	if err == nil {
		p.Close()
	}
	return err
}

// dotNetThreads recognises a .NET process without the right to read the process, by the names of the runtime's
// threads. Everybody may read these names.
func dotNetThreads(dir procfs.Dir) bool {
	tids, err := dir.Tasks()
	if err != nil {
		return false
	}
	const first = 1000 // the runtime's threads are among the first of a program
	for _, tid := range tids[:min(len(tids), first)] {
		if name, err := dir.TaskComm(tid); err == nil && strings.HasPrefix(name, ".NET ") {
			return true
		}
	}
	return false
}
