package session

import (
	"reflect"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/moment"
	"clrsnap/internal/naming"
	"clrsnap/profile"
)

// Bounds of the exceptions of one thread.
const (
	maxExceptions = 64      // together
	maxDepth      = 16      // of a chain of inner exceptions
	maxTraces     = 4000    // trace frames of all exceptions together
	maxTexts      = 1 << 20 // bytes of messages and traces as text
	maxBases      = 32      // base classes of an exception's class
)

// The classes of System.Private.CoreLib whose fields are read.
const (
	coreLib            = "System.Private.CoreLib"
	exceptionName      = "System.Exception"
	argumentException  = "System.ArgumentException"
	aggregateException = "System.AggregateException"
)

// thrown is the content of an exception object, without the names of methods.
type thrown struct {
	at        arch.Addr
	name      string // of the class
	object    thread.ExceptionObject
	parameter string // of an ArgumentException
	trace     thread.Trace
	traceErr  string
	inner     *thrown
	others    []*thrown
	leftOut   bool
}

// reading is one reading of the exceptions of a thread.
type reading struct {
	p      *Process
	seen   map[arch.Addr]bool
	frames int // room left for frames
	texts  int // room left for text, in bytes
}

// read reads the exceptions in some objects, with the inner exceptions. Unreadable exceptions are
// left out.
func (p *Process) read(objects []arch.Addr) []*thrown {
	r := reading{p: p, seen: map[arch.Addr]bool{}, frames: maxTraces, texts: maxTexts}
	var out []*thrown
	for _, obj := range objects {
		if t := r.read(obj, 0); t != nil {
			out = append(out, t)
		}
	}
	return out
}

// read reads the exception in an object; nil: the object cannot be read, or is no exception, or
// there is no room left.
func (r *reading) read(obj arch.Addr, depth int) *thrown {
	if obj == 0 || depth >= maxDepth || r.seen[obj] || len(r.seen) >= maxExceptions {
		return nil
	}
	r.seen[obj] = true
	if r.p.Runtime == nil {
		return r.readAhead(obj, depth)
	}
	threads := r.p.Managed.Threads
	e, err := threads.ReadException(obj)
	if err != nil {
		return r.p.lostException(obj, err)
	}
	class, err := r.p.Runtime.Names.Class(e.Type)
	if err != nil {
		if !r.p.from.LeftOut(err) {
			return nil
		}
		class.Display = unnamed("class", e.Type)
	}
	base, baseName, known := r.p.knownBase(e.Type)
	if known && baseName == "" {
		return nil // no exception
	}
	r.bound(&e)
	t := &thrown{at: obj, name: class.Display, object: e}
	if t.trace, err = threads.ReadTrace(obj); err != nil {
		t.traceErr = err.Error()
	}
	r.keepFrames(t)
	if baseName == argumentException && e.Message != "" {
		t.parameter, _ = threads.OwnString(obj, base)
	}
	if t.inner = r.read(e.Inner, depth+1); t.inner == nil && e.Inner != 0 {
		t.leftOut = true
	}
	if baseName == aggregateException {
		r.others(t, threads.Own(obj, base), depth)
	}
	return t
}

// keepFrames cuts the trace of an exception to the room left.
func (r *reading) keepFrames(t *thrown) {
	if n := len(t.trace.Frames); n > r.frames {
		t.trace.Frames, t.trace.More = t.trace.Frames[:r.frames], t.trace.More+n-r.frames
	}
	r.frames -= len(t.trace.Frames)
}

// bound cuts the texts of an exception to the room left.
func (r *reading) bound(e *thread.ExceptionObject) {
	if len(e.Message) > r.texts {
		e.Message, e.Cut = "", true
	}
	r.texts -= len(e.Message)
	for _, text := range []*string{&e.Remote, &e.Text} {
		if len(*text) > r.texts {
			*text = ""
		}
		r.texts -= len(*text)
	}
}

// others reads the inner exceptions of an AggregateException after the first. The first is the
// Inner of the object (System.Private.CoreLib, AggregateException.cs: _innerExceptions).
func (r *reading) others(t *thrown, array arch.Addr, depth int) {
	if array == 0 {
		return
	}
	objects, all, err := r.p.Managed.Threads.References(array, maxExceptions)
	t.leftOut = t.leftOut || err != nil || all > len(objects)
	r.otherExceptions(t, objects, depth)
}

// otherExceptions reads the objects in the array of an AggregateException.
func (r *reading) otherExceptions(t *thrown, objects []arch.Addr, depth int) {
	for i, obj := range objects {
		if i == 0 && obj == t.object.Inner {
			continue
		}
		o := r.read(obj, depth+1)
		if o == nil {
			t.leftOut = true
			continue
		}
		t.others = append(t.others, o)
	}
}

// knownBase returns the nearest of the classes above, among a class and the base classes, and the
// name; "" if there is none. known is false if not all classes can be read, as in a small dump.
func (p *Process) knownBase(class arch.Addr) (base arch.Addr, name string, known bool) {
	for range maxBases {
		c, err := p.Runtime.Names.Class(class)
		if err != nil {
			return 0, "", false
		}
		switch c.Display {
		case exceptionName, argumentException, aggregateException:
			if c.Assembly == coreLib {
				return class, c.Display, true
			}
		case "object", "System.Object":
			return 0, "", true
		}
		if class = p.Managed.Threads.Base(class); class == 0 {
			return 0, "", false
		}
	}
	return 0, "", false
}

// exceptions describes the exceptions in some objects. uncertain is the reason why the objects may
// be the wrong exceptions.
func (p *Process) exceptions(names naming.Stacks, objects []arch.Addr, uncertain string) []*profile.ExceptionInfo {
	var out []*profile.ExceptionInfo
	for _, t := range p.read(objects) {
		e := describeThrown(names, t)
		e.Uncertain = uncertain
		out = append(out, e)
	}
	return out
}

// describeThrown names the content of an exception.
func describeThrown(names naming.Stacks, t *thrown) *profile.ExceptionInfo {
	o := &t.object
	e := &profile.ExceptionInfo{
		Type: t.name, Message: o.Message, NoMessage: o.Unread, CutMessage: o.Cut, HResult: o.HResult,
		More: t.trace.More, Remote: o.Remote + o.Text, NoFrames: t.traceErr, LeftOut: t.leftOut,
	}
	if t.parameter != "" { // the wording of System.Private.CoreLib (Arg_ParamName_Name in Strings.resx)
		e.Message += " (Parameter '" + t.parameter + "')"
	}
	if o.Text == "" { // else .NET prints Text, and no frames
		e.Frames = make([]profile.TraceFrame, 0, len(t.trace.Frames))
		above := ""
		for i := range t.trace.Frames {
			e.Frames = append(e.Frames, names.TraceFrame(&t.trace.Frames[i], above))
			if above = e.Frames[i].Method; t.trace.Frames[i].EndsTrace {
				above = "" // the next frame has not called the current frame
			}
		}
	}
	if t.inner != nil {
		e.Inner = describeThrown(names, t.inner)
	}
	for _, o := range t.others {
		e.Others = append(e.Others, describeThrown(names, o))
	}
	return e
}

// Why a described exception may be the wrong exception.
const (
	uncertainMoved = "the garbage collector ran, or the exception changed, while it was read"
	uncertainRan   = "the thread ran meanwhile: the exception was in flight a moment after the stack"
	uncertainFound = "found among the objects that the stack refers to"
	uncertainAlone = "the only exception with a stack trace on the heap: the dump lacks what the thread refers to"
	uncertainCut   = "the exception that the thread threw last: the dump lacks the record of the exceptions in flight"
)

// exception describes the exceptions of a captured thread.
func (s *visit) exception(st *profile.Thread) {
	p := s.Process
	switch {
	case p.Managed == nil:
		return
	case !p.moments.Changes():
		setExceptions(st, s.stillExceptions(st.Crashed))
	case s.Walk.Info.Address != 0 && s.Walk.Info.Exception != 0:
		setExceptions(st, s.liveExceptions())
	}
	if st.Exception == nil && p.Runtime != nil {
		s.unobserved(st)
	}
}

func setExceptions(st *profile.Thread, all []*profile.ExceptionInfo) {
	if len(all) > 0 {
		st.Exception, st.Handling = all[0], all[1:]
	}
}

// liveExceptions describes the exceptions in flight of a thread of a running process. Objects move
// and change meanwhile. Exceptions are certain if two readings are equal, and no collection was
// under way before, between and after the readings.
func (s *visit) liveExceptions() []*profile.ExceptionInfo {
	find := func() []arch.Addr { return s.Process.Managed.Threads.InFlight(&s.Walk.Info) }
	all, stands := s.Process.readTwice(find)
	uncertain := ""
	switch {
	case !stands:
		uncertain = uncertainMoved
	case !s.unmoved():
		uncertain = uncertainRan
	}
	if !s.Process.Managed.Threads.StillInFlight(&s.Walk.Info) {
		return nil // handled since: the data read can be anything
	}
	out := make([]*profile.ExceptionInfo, 0, len(all))
	for _, t := range all {
		e := describeThrown(s.g.names, t)
		e.Uncertain = uncertain
		out = append(out, e)
	}
	return out
}

// readTwice reads exceptions until two readings are equal. False: no two readings were equal.
func (p *Process) readTwice(find func() []arch.Addr) (all []*thrown, stands bool) {
	return moment.Twice(p.moments, func() []*thrown { return p.read(find()) },
		func(a, b []*thrown) bool { return reflect.DeepEqual(a, b) })
}

// unmoved reports whether the thread has certainly not run since the capture.
func (s *Suspension) unmoved() bool {
	return !s.ran && s.Process.moments.Rests(s.Thread.OSThreadID, s.Capture.Proof)
}

// The method that reports the exceptions of an unobserved task, and the class of the handlers'
// arguments (System.Private.CoreLib, TaskExceptionHolder.cs and TaskScheduler.cs).
const (
	holderFinalizer = "System.Threading.Tasks.TaskExceptionHolder.Finalize"
	unobservedArgs  = "System.Threading.Tasks.UnobservedTaskExceptionEventArgs"
)

// unobserved describes the exception that a thread passes to the handlers of
// TaskScheduler.UnobservedTaskException. The exception is not in flight: only the arguments of the
// handlers refer to the exception, and some frame refers to the arguments.
func (s *visit) unobserved(st *profile.Thread) {
	if s.Thread.Role != finalizer {
		return
	}
	at := slices.IndexFunc(st.Frames, func(f profile.Frame) bool {
		return f.Method == holderFinalizer && f.Module == coreLib
	})
	if at < 0 || at+1 >= len(st.Frames) {
		return
	}
	p := s.Process
	find := func() []arch.Addr {
		args := p.Managed.Threads.Objects(arch.Addr(st.Frames[0].SP), arch.Addr(st.Frames[at+1].SP), p.isUnobserved)
		if len(args) != 1 {
			return nil
		}
		return []arch.Addr{p.Managed.Threads.First(args[0])}
	}
	all, stands := p.readTwice(find)
	uncertain := uncertainFound
	if !stands {
		uncertain = uncertainMoved
	}
	if len(all) == 1 {
		st.Exception = describeThrown(s.g.names, all[0])
		st.Exception.Uncertain = uncertain
	}
}

func (p *Process) isUnobserved(class arch.Addr) bool {
	c, err := p.Runtime.Names.Class(class)
	return err == nil && c.Display == unobservedArgs && c.Assembly == coreLib
}
