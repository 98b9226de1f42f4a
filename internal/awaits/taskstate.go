package awaits

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/snapshot"
)

const taskName = "System.Threading.Tasks.Task"

// taskEnds are the bits of Task.m_stateFlags for the ways in which a task ends (Task.cs, TaskStateFlags).
var taskEnds = []struct {
	bit   uint32
	state snapshot.TaskState
}{
	{0x0020_0000, snapshot.TaskFaulted}, {0x0040_0000, snapshot.TaskCanceled}, {0x0100_0000, snapshot.TaskReady},
}

// TaskEnd is how a task has ended, by Task.m_stateFlags; "": the task has not ended.
func TaskEnd(flags uint32) snapshot.TaskState {
	for _, e := range taskEnds {
		if flags&e.bit != 0 {
			return e.state
		}
	}
	return ""
}

// IsTask reports whether objects of a class are tasks.
func IsTask(class *object.Class) bool { return class.Is(coreLib, taskName) }

// IsComplete reports whether an object is a complete task.
func (p *Program) IsComplete(obj arch.Addr, class *object.Class) (complete, known bool) {
	if !IsTask(class) {
		return false, true
	}
	flags, err := p.managed.Objects.Uint32(obj, class, "m_stateFlags")
	return TaskEnd(flags) != "", err == nil
}

// Reach follows the references in fields from an object. The result is the end of the first path that leads somewhere.
// Dots separate the steps of a path.
func (p *Program) Reach(obj arch.Addr, class *object.Class, paths ...string) (arch.Addr, bool) {
	for _, path := range paths {
		at, c := obj, class
		for name := range strings.SplitSeq(path, ".") {
			var err error
			if at, err = p.managed.Objects.Pointer(at, c, name); err != nil || at == 0 {
				at = 0
				break
			}
			if c, err = p.managed.Objects.Class(at); err != nil {
				at = 0
				break
			}
		}
		if at != 0 {
			return at, true
		}
	}
	return 0, false
}
