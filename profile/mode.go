package profile

import "fmt"

// Mode is what a sample measures: a kind of time, or a kind of event. A Mode is neither the
// GC mode of a thread (Thread.Mode) nor a mode of the stack walk.
type Mode uint8

// The modes. CPU and Wall samples are samples of time. The other modes are the event modes: a
// sample stands for one or several events, with the stack of the events' thread. The leaf of
// that stack is a function of kind [Event], which names the event.
const (
	CPU         Mode = iota // CPU time
	Wall                    // wall-clock time, whether the thread ran or waited
	Alloc                   // allocated objects
	Exception               // thrown exceptions
	Contention              // waits for a lock that another thread held
	ThreadStart             // started threads, with the stack of the thread that called Start
	GC                      // pauses of the whole program for garbage collection
	Waits                   // waits for locks, events, tasks and threads, with or without a holder
	Live                    // allocated objects that are still alive at the end of the recording
)

// Modes are all modes, in the order for display.
var Modes = [...]Mode{CPU, Wall, Alloc, Exception, Contention, ThreadStart, GC, Waits, Live}

// Unit is the unit of a weight.
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
	Waits:       {"wait", "Waiting time", Nanoseconds},
	Live:        {"live", "Live bytes", Bytes},
}

// String returns the mode's name in files and on the command line: "cpu", "wall", "alloc" and
// so on.
func (m Mode) String() string {
	if !m.Known() {
		return fmt.Sprintf("mode %d", uint8(m))
	}
	return modes[m].name
}

// Known reports whether m is one of Modes.
func (m Mode) Known() bool { return int(m) < len(Modes) }

// Unit returns the unit of the weights of the mode's samples.
func (m Mode) Unit() Unit { return modes[m].unit }

// Title returns what the weights of the mode's samples are, for people: "CPU time",
// "Allocated bytes".
func (m Mode) Title() string { return modes[m].title }

// OfEvents reports whether m is an event mode: its samples stand for events, not for
// sampled time.
func (m Mode) OfEvents() bool { return m > Wall }

// OfObjects reports whether the samples of m are objects, with their size in bytes.
func (m Mode) OfObjects() bool { return m == Alloc || m == Live }

// OfWaits reports whether the samples of m are waits: the thread was blocked until Sample.At.
func (m Mode) OfWaits() bool { return m == Contention || m == Waits }

// ModeNamed returns the mode whose String is name; false: there is none.
func ModeNamed(name string) (Mode, bool) {
	for _, m := range Modes {
		if modes[m].name == name {
			return m, true
		}
	}
	return 0, false
}
