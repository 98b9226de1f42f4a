// Package origin has the sources of a process: a running process, a process whose threads stand still for a moment, a
// core dump, and a recorded moment. An origin tells threads, registers and memory.
package origin

import (
	"strings"
	"sync"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
)

// Origin is the source of a process. Its methods are the only differences between running processes and core dumps.
type Origin interface {
	engine.Source
	// OpenFile opens a regular file by its path in the process.
	OpenFile(path string) (target.File, error)
	PID() int
	// Alive returns nil as long as the process can be read; an error once it has exited.
	Alive() error
	Threads() ([]int, error)
	Thread(tid int) (target.ThreadInfo, error)
	NSTid(tid int) (int, error) // the thread's id inside the target's PID namespace
	Capture(*target.Request, *target.Capture) error
	// TryBlocked captures a thread without a stop. The error says that this is not possible.
	TryBlocked(*target.Request, *target.Capture) error
	Close() error

	// Runs returns nil if the process can be recorded and send notifications, else the reason why not.
	Runs() error
	// Crashed is the thread that the process died of; 0: none.
	Crashed() int
	// CapturedAt is the time of facts that were read at a time.
	CapturedAt(read time.Time) time.Time
	// Missing lists, in one sentence each, what a core dump lacks (core.Core.Missing). so is the consequence of missing
	// pages. dump is false for other origins: nothing is missing.
	Missing(so string) (list []string, dump bool)
	// Starting reports whether the runtime may still be starting.
	Starting() bool
	// Misses is how many reads have failed so far because the origin lacks memory that the process had.
	Misses() int
	// relocated returns the word at an address in an image that the origin lacks, by the image's file
	// (core.Relocated).
	Relocated(at arch.Addr) (arch.Addr, bool)
	// LeftOut reports whether err is about memory that the process had, and the origin lacks.
	LeftOut(err error) bool
	// Proved reports whether the bytes read of an image in a mapping are the bytes that the process had loaded.
	Proved(image arch.Addr, m *target.Mapping) bool
	// Refused is called with an image whose file is not the file that the process had loaded.
	Refused(image arch.Addr, why error)
	// Spoilt says why the runtime could not be opened, if the reason lies in the origin's files; else nil. found is
	// the runtime; nil: none was found.
	Spoilt(found *locate.Runtime, err error) error
}

// running is a running process as the origin of a Process.
type running struct {
	*live.Process
	loading func() time.Time // when the runtime began to load assemblies, about; read once
}

// Running is a running process.
func Running(p *live.Process) Origin { return newRunning(p) }

func newRunning(p *live.Process) running {
	return running{p, sync.OnceValue(func() time.Time { return loading(p) })}
}

func (running) Runs() error                           { return nil }
func (running) Crashed() int                          { return 0 }
func (running) CapturedAt(read time.Time) time.Time   { return read }
func (running) Misses() int                           { return 0 }
func (running) Missing(string) ([]string, bool)       { return nil, false }
func (running) Relocated(arch.Addr) (arch.Addr, bool) { return 0, false }
func (running) LeftOut(error) bool                    { return false }
func (running) Refused(arch.Addr, error)              {}
func (running) Spoilt(*locate.Runtime, error) error   { return nil }

// OpenFile implements assemblies.Source.
func (r running) OpenFile(path string) (target.File, error) {
	f, err := r.Process.OpenFile(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// settled is the longest that the runtime takes to start.
const settled = 10 * time.Second

// Starting implements Origin: none of the runtime's own threads is older than settled.
func (r running) Starting() bool {
	tids, err := r.Threads()
	if err != nil {
		return true
	}
	for _, tid := range tids {
		i, err := r.Thread(tid)
		if err == nil && strings.HasPrefix(i.Name, ".NET ") && live.Age(i.StartTime) > settled {
			return false
		}
	}
	return true
}

// Proved implements Origin. A mapped file shows later writes. The runtime loads nothing before it has a thread of its
// own, and no file before the file exists and is complete: a file that the program itself compiles or copies is
// written once.
func (r running) Proved(_ arch.Addr, m *target.Mapping) bool {
	const writing = 2 * time.Second // how long it takes to write a file
	made, changed, known := r.Written(m)
	loading := r.loading()
	return !known || !changed.After(loading) || made.After(loading) && changed.Sub(made) < writing
}

// loading is about when the runtime began to load assemblies: when the first thread beside the main thread was started.
func loading(p *live.Process) time.Time {
	const slack = 20 * time.Millisecond // the kernel counts in ticks
	age := live.Age(p.StartTime())
	if tids, err := p.Threads(); err == nil {
		oldest := time.Duration(0)
		for _, tid := range tids {
			if i, err := p.Thread(tid); err == nil && tid != p.PID() {
				oldest = max(oldest, live.Age(i.StartTime))
			}
		}
		if oldest > 0 {
			age = min(age, oldest)
		}
	}
	return time.Now().Add(slack - age)
}
