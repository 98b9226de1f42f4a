package profile

import "fmt"

// Mode is what the weights of a sample count.
type Mode uint8

// The modes. CPU samples stand for time on a processor, Wall samples for time as
// the clock on the wall has it, of whatever a thread did. The samples of the other
// modes, the event modes, stand for what happened to a thread: the leaf of such a
// stack says what, as a function of kind Event.
const (
	CPU Mode = iota
	Wall
	Alloc       // objects that were allocated
	Exception   // exceptions that were thrown
	Contention  // waits for a lock that another thread held
	ThreadStart // threads that were started, where they were
	GC          // stops of the program by the garbage collector
)

// Modes are all modes, in the order in which they are shown.
var Modes = [...]Mode{CPU, Wall, Alloc, Exception, Contention, ThreadStart, GC}

// Unit is what a weight is measured in.
type Unit uint8

// The units.
const (
	Nanoseconds Unit = iota
	Bytes
	Count
)

func (u Unit) String() string {
	return [...]string{Nanoseconds: "nanoseconds", Bytes: "bytes", Count: "count"}[u]
}

// modes are the properties of each mode.
var modes = [len(Modes)]struct {
	name, title string
	unit        Unit
}{
	CPU:         {"cpu", "CPU time", Nanoseconds},
	Wall:        {"wall", "Wall-clock time", Nanoseconds},
	Alloc:       {"alloc", "Allocated bytes", Bytes},
	Exception:   {"exception", "Exceptions thrown", Count},
	Contention:  {"contention", "Lock waiting time", Nanoseconds},
	ThreadStart: {"thread", "Threads started", Count},
	GC:          {"gc", "GC pauses", Nanoseconds},
}

// String is the name of a mode in files and on command lines.
func (m Mode) String() string {
	if !m.Known() {
		return fmt.Sprintf("mode %d", uint8(m))
	}
	return modes[m].name
}

// Known reports whether m is one of Modes.
func (m Mode) Known() bool { return int(m) < len(Modes) }

// Unit is what the weights of the mode's samples are measured in.
func (m Mode) Unit() Unit { return modes[m].unit }

// Title is what the weights of the mode's samples are, for people.
func (m Mode) Title() string { return modes[m].title }

// OfEvents reports whether samples of the mode stand for events and not for time
// that was sampled.
func (m Mode) OfEvents() bool { return m > Wall }

// ModeNamed returns the mode of a name as String has it.
func ModeNamed(name string) (Mode, bool) {
	for _, m := range Modes {
		if modes[m].name == name {
			return m, true
		}
	}
	return 0, false
}
