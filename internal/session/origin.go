package session

import (
	"strings"
	"sync"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// origin is the source of a process: a running process or a core dump. Its methods are the only differences between
// the two.
type origin interface {
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

	// runs returns nil if the process can be recorded and send notifications, else the reason why not.
	runs() error
	// Crashed is the thread that the process died of; 0: none.
	Crashed() int
	// capturedAt is the time of facts that were read at a time.
	capturedAt(read time.Time) time.Time
	// note records the cost or the gaps of a snapshot's stacks, until end is called.
	note(g *gathering) (end func())
	// noteTasks records the gaps of the tasks in out.
	noteTasks(out *profile.Tasks)
	// furtherStack bounds a further piece of a stack, in bytes. pieces is how many pieces were copied before, and
	// left is how many bytes may still be copied.
	furtherStack(pieces, left int) int
	// starting reports whether the runtime may still be starting.
	starting() bool
	// misses is how many reads have failed so far because the origin lacks memory that the process had.
	misses() int
	// relocated returns the word at an address in an image that the origin lacks, by the image's file
	// (core.Relocated).
	Relocated(at arch.Addr) (arch.Addr, bool)
	// leftOut reports whether err is about memory that the process had, and the origin lacks.
	leftOut(err error) bool
	// proved reports whether the bytes read of an image in a mapping are the bytes that the process had loaded.
	proved(image arch.Addr, m *target.Mapping) bool
	// refused is called with an image whose file is not the file that the process had loaded.
	refused(image arch.Addr, why error)
	// spoilt says why the runtime could not be opened, if the reason lies in the origin's files; else nil. found is
	// the runtime; nil: none was found.
	spoilt(found *locate.Runtime, err error) error
}

// running is a running process as the origin of a Process.
type running struct {
	*live.Process
	loading func() time.Time // when the runtime began to load assemblies, about; read once
}

func newRunning(p *live.Process) running {
	return running{p, sync.OnceValue(func() time.Time { return loading(p) })}
}

func (running) runs() error                           { return nil }
func (running) Crashed() int                          { return 0 }
func (running) capturedAt(read time.Time) time.Time   { return read }
func (running) furtherStack(_, left int) int          { return left }
func (running) misses() int                           { return 0 }
func (running) noteTasks(*profile.Tasks)              {}
func (running) Relocated(arch.Addr) (arch.Addr, bool) { return 0, false }
func (running) leftOut(error) bool                    { return false }
func (running) refused(arch.Addr, error)              {}
func (running) spoilt(*locate.Runtime, error) error   { return nil }

// note implements origin: it records how long each stop lasts.
func (r running) note(g *gathering) (end func()) {
	g.stops = &g.out.Stops
	before := r.Released()
	return func() { g.out.Released = r.Released() - before }
}

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

// starting implements origin: none of the runtime's own threads is older than settled.
func (r running) starting() bool {
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

// Runs returns nil for a running process. For a core dump the error says that recordings and notifications need a
// running process.
func (p *Process) Runs() error { return p.from.runs() }
