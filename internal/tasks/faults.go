package tasks

import (
	"cmp"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/naming"
	"clrsnap/snapshot"
)

// A task that has failed leads to a TaskExceptionHolder (System.Private.CoreLib, TaskExceptionHolder.cs) with the
// exceptions. The holder says whether somebody has asked for the exceptions: an await asks, and so does Wait.
const faultHolder = "System.Threading.Tasks.TaskExceptionHolder"

// backgroundService is the base class of a host's services (Microsoft.Extensions.Hosting.Abstractions,
// BackgroundService.cs). The host awaits the task of ExecuteAsync itself.
const (
	backgroundService = "Microsoft.Extensions.Hosting.BackgroundService"
	serviceTask       = "_executeTask"
)

// Bounds of the faults that are read and kept.
const (
	maxFaultObjects = 1 << 14
	maxFaults       = 64
)

// isService reports whether objects of a class are services of a host.
func isService(class *object.Class) bool {
	for c := range class.Bases {
		if c.Plain() == backgroundService {
			return true
		}
	}
	return false
}

// faults describes the failed tasks on the heap. Equal faults are counted.
func (t *Walk) faults() []snapshot.TaskFault {
	services := t.serviceTasks()
	by := map[string]*snapshot.TaskFault{}
	var list []*snapshot.TaskFault
	objects := t.Objects[faultClass]
	for _, holder := range objects[:min(len(objects), maxFaultObjects)] {
		if t.Stopped() {
			break
		}
		var f *snapshot.TaskFault
		if !t.Prove(func() (err error) { f, err = t.fault(holder, services); return err }) || f == nil {
			continue
		}
		key := f.Method + "\x00" + f.Service + "\x00" + f.Exception.Type + "\x00" + f.Exception.Message
		if f.Observed {
			key += "\x00"
		}
		switch same := by[key]; {
		case same != nil:
			same.Count++
		case len(list) < maxFaults:
			by[key], list = f, append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b *snapshot.TaskFault) int {
		return cmp.Or(cmp.Compare(faultRank(a), faultRank(b)), cmp.Compare(b.Count, a.Count))
	})
	out := make([]snapshot.TaskFault, len(list))
	for i, f := range list {
		out[i] = *f
	}
	return out
}

// faultRank orders faults: services, then what nobody has observed.
func faultRank(f *snapshot.TaskFault) int {
	switch {
	case f.Service != "":
		return 0
	case !f.Observed:
		return 1
	}
	return 2
}

// serviceTasks are the services of the host, by the task of ExecuteAsync.
func (t *Walk) serviceTasks() map[arch.Addr]string {
	out := map[arch.Addr]string{}
	for _, obj := range t.Objects[serviceClass] {
		class, err := t.p.Managed.Objects.Class(obj)
		if err != nil {
			continue
		}
		if task, err := t.p.Managed.Objects.Pointer(obj, class, serviceTask); err == nil && task != 0 {
			out[task] = class.Display
		}
	}
	return out
}

// ended are the classes of the services whose ExecuteAsync has ended without an exception.
func (t *Walk) ended() (out []string) {
	for task, service := range t.serviceTasks() {
		complete := false
		if t.Prove(func() error {
			class, err := t.p.Managed.Objects.Class(task)
			if err != nil || !awaits.IsTask(class) {
				return err
			}
			flags, err := t.p.Managed.Objects.Uint32(task, class, "m_stateFlags")
			complete = awaits.TaskEnd(flags) == snapshot.TaskReady
			return err
		}) && complete && !snapshot.Framework(service) {
			out = append(out, service)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// fault describes the failed task of a holder. nil: the holder has no exception.
func (t *Walk) fault(holder arch.Addr, services map[arch.Addr]string) (*snapshot.TaskFault, error) {
	objects := t.p.Managed.Objects
	class, err := objects.Class(holder)
	if err != nil {
		return nil, err
	}
	task, err := objects.Pointer(holder, class, "m_task")
	if err != nil {
		return nil, err
	}
	handled, err := objects.Uint32(holder, class, "m_isHandled") // a byte
	if err != nil {
		return nil, err
	}
	at, ok := t.p.Reach(holder, class, "m_faultExceptions._items")
	if !ok {
		return nil, nil // canceled
	}
	refs, err := objects.References(at, 1)
	if err != nil || len(refs) == 0 || refs[0] == 0 {
		return nil, err
	}
	info, err := objects.Class(refs[0])
	if err != nil {
		return nil, err
	}
	exception, err := objects.Pointer(refs[0], info, "_exception")
	if err != nil {
		return nil, err
	}
	all := t.p.Exceptions(exception)
	if len(all) == 0 {
		return nil, nil
	}
	_, method := t.methodNames(task)
	return &snapshot.TaskFault{
		Count: 1, Method: cmp.Or(method, runBy(all[0])), Service: services[task], Observed: byte(handled) != 0,
		Exception: all[0], Object: uint64(task),
		ReadsChannel: t.faultDoes(task, all[0], t.p.StepReads, t.p.ReadsChannel),
		Completes:    t.faultDoes(task, all[0], t.p.StepCompletes, t.p.Completes),
	}, nil
}

// faultDoes reports whether the method of a failed task, or a method that the exception has left, does something.
func (t *Walk) faultDoes(
	task arch.Addr, e *snapshot.ExceptionInfo, does func(*async.Step) bool, frameDoes func(*snapshot.Frame) bool,
) bool {
	if b, err := t.Reader.Box(task); err == nil {
		return does(&async.Step{Box: b})
	}
	return slices.ContainsFunc(e.Frames, func(f snapshot.TraceFrame) bool { return frameDoes(&f.Frame) })
}

// runBy is the method that a task ran, by an exception's trace: the outermost method of the program, below a method of
// Task. Without a method of Task at the end, somebody has thrown the exception again, and caught it; "": not known. An
// async method of Native AOT has no name in its task, and counts.
func runBy(e *snapshot.ExceptionInfo) string {
	task := false
	for i := range slices.Backward(e.Frames) {
		f := &e.Frames[i]
		task = task || f.Origin() == snapshot.OfFramework && strings.HasPrefix(f.Method, "System.Threading.Tasks.Task")
		if f.Origin() == snapshot.OfUser {
			if task || f.Tier == naming.TierAhead && strings.HasSuffix(f.Display, "{async}") {
				return f.Display
			}
			return ""
		}
	}
	return ""
}
