package awaits

import (
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/snapshot"
)

// runtimeTaskPrefix begins the name of the class of RuntimeAsyncTasks: the tasks of methods that the runtime itself
// suspends. The class does not name the method; a box's class does.
const runtimeTaskPrefix = "System.Runtime.CompilerServices.AsyncHelpers+RuntimeAsyncTask<"

// NameTask adds the method to a wait for a RuntimeAsyncTask: the outermost of the methods suspended in the task, or
// the running method. run: the thread that runs a method of the task; nil: no thread is known.
func (p *Program) NameTask(w *snapshot.Wait, run *snapshot.Thread) {
	if w.Method != "" || !strings.HasPrefix(w.Type, runtimeTaskPrefix) {
		return
	}
	task, r := arch.Addr(w.Object), p.AsyncReader()
	name := ""
	stands := p.moments.Read(func() error {
		steps, suspended, err := r.Methods(task)
		if err == nil && !suspended && run != nil {
			name, err = p.runningName(task, run)
			return err
		}
		name = p.outermost(task, steps)
		return err
	}, nil)
	if stands {
		w.Method = name
	}
}

// runningName names the outermost method of a task with a running method; "": not known.
func (p *Program) runningName(task arch.Addr, t *snapshot.Thread) (string, error) {
	class, err := p.managed.Objects.Class(task)
	if err != nil {
		return "", err
	}
	if !p.CanResume(class.Table) {
		return "", nil
	}
	list, err := p.Dispatching(arch.Addr(t.ThreadID))
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(list, func(d async.Dispatching) bool { return d.Task == task })
	if at < 0 {
		return "", nil
	}
	chain, err := p.AsyncReader().Resuming(list[at])
	if name := p.outermost(task, chain.Steps); name != "" || err != nil {
		return name, err
	}
	stubs := 0 // the running method is the only one
	for i := range t.Frames {
		if t.Frames[i].Method != ResumeStub {
			continue
		}
		if stubs == at && i > 0 {
			return t.Frames[i-1].Display, nil
		}
		stubs++
	}
	return "", nil
}

// outermost names the last of the methods suspended in a task; "": no method is suspended, or known.
func (p *Program) outermost(task arch.Addr, steps []async.Step) (name string) {
	for _, s := range p.ProgramSteps(slices.Clone(steps)) {
		if s.Resumption != nil && s.Task() == task {
			name = p.AsyncFrame(&s).Display
		}
	}
	return name
}
