package awaits

import (
	"errors"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/snapshot"
)

// The pool also calls tasks that run a delegate, as in Task.Run. The task is on the stack, near the method that runs
// the task (Task.cs), and leads to the awaiters.

const runsTask = "System.Threading.Tasks.Task.ExecuteWithThreadLocal"

// withinTask are the beginnings of the methods between a task's delegate and runsTask.
var withinTask = []string{
	"System.Threading.Tasks.Task.InnerInvoke", "System.Threading.Tasks.Task`1.InnerInvoke",
	"System.Threading.Tasks.Task+<>c.<.cctor>", contextMethods, runsTask,
}

// taskFrame notes a frame that runs a task, or that is called by a frame that runs a task.
func (a *Asyncs) taskFrame(fr *snapshot.Frame, index int) {
	within := fr.Kind == snapshot.Managed && fr.Module == coreLib &&
		slices.ContainsFunc(withinTask, func(s string) bool { return strings.HasPrefix(fr.Method, s) })
	switch {
	case !within:
		a.task = -1
		return
	case a.task < 0:
		a.task = index
	}
	if strings.HasPrefix(fr.Method, runsTask) && len(a.Sites) < maxAsyncSites {
		a.Sites = append(a.Sites, Site{Below: a.task, task: index})
		a.task = -1
	}
}

// RunsTask returns the index of the frame that runs the delegate of a task, if the frame of the site is called by the
// delegate. Argument is to be the task.
func (site *Site) RunsTask() (frame int, ok bool) { return site.task, site.task > 0 }

// errNoTask: the object of a frame is no running task.
var errNoTask = errors.New("no task that runs")

// awaitingTask reads the awaiters of a task whose delegate a thread runs, once.
func (p *Program) awaitingTask(task arch.Addr) (c async.Chain, err error) {
	if task == 0 {
		return c, errNoTask
	}
	class, err := p.managed.Objects.Class(task)
	if err != nil {
		return c, err
	}
	if complete, known := p.IsComplete(task, class); complete || !known {
		return c, errNoTask
	}
	return p.AsyncReader().Awaiting(task)
}
