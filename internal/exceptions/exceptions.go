// Package exceptions reads the exception objects of a process: types, messages, stack traces and inner exceptions.
package exceptions

import (
	"errors"
	"fmt"
	"reflect"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/engine"
	"clrsnap/internal/moment"
	"clrsnap/internal/target"
)

// Bounds of the exceptions of one thread.
const (
	Most = 64 // together

	maxDepth  = 16      // of a chain of inner exceptions
	maxTraces = 4000    // trace frames of all exceptions together
	maxTexts  = 1 << 20 // bytes of messages and traces as text
	maxBases  = 32      // base classes of an exception's class
)

// The classes of System.Private.CoreLib whose fields are read.
const (
	coreLib            = "System.Private.CoreLib"
	exceptionName      = "System.Exception"
	argumentException  = "System.ArgumentException"
	aggregateException = "System.AggregateException"
)

// Reader reads the exceptions of one process. A Reader is not safe for concurrent use.
type Reader struct {
	engine  *engine.Engine
	runtime *clr.Runtime // of engine; nil: a native AOT program
	managed *clr.Managed // of engine
	moments *moment.Reader
	leftOut func(error) bool
}

// New returns a reader. leftOut reports whether an error is about memory that the process had, and that cannot be read.
func New(e *engine.Engine, moments *moment.Reader, leftOut func(error) bool) *Reader {
	return &Reader{e, e.Runtime, e.Managed, moments, leftOut}
}

// Thrown is the content of an exception object, without the names of methods.
type Thrown struct {
	at        arch.Addr
	name      string // of the class
	object    thread.ExceptionObject
	parameter string // of an ArgumentException
	trace     thread.Trace
	traceErr  string
	inner     *Thrown
	others    []*Thrown
	leftOut   bool
}

// reading is one reading of the exceptions of a thread.
type reading struct {
	p      *Reader
	seen   map[arch.Addr]bool
	frames int // room left for frames
	texts  int // room left for text, in bytes
}

// Read reads the exceptions in some objects, with the inner exceptions. Unreadable exceptions are
// left out.
func (p *Reader) Read(objects []arch.Addr) []*Thrown {
	r := reading{p: p, seen: map[arch.Addr]bool{}, frames: maxTraces, texts: maxTexts}
	var out []*Thrown
	for _, obj := range objects {
		if t := r.read(obj, 0); t != nil {
			out = append(out, t)
		}
	}
	return out
}

// read reads the exception in an object; nil: the object cannot be read, or is no exception, or
// there is no room left.
func (r *reading) read(obj arch.Addr, depth int) *Thrown {
	if obj == 0 || depth >= maxDepth || r.seen[obj] || len(r.seen) >= Most {
		return nil
	}
	r.seen[obj] = true
	if r.p.runtime == nil {
		return r.readAhead(obj, depth)
	}
	threads := r.p.managed.Threads
	e, err := threads.ReadException(obj)
	if err != nil {
		return r.p.lostException(obj, err)
	}
	class, err := r.p.runtime.Names.Class(e.Type)
	if err != nil {
		if !r.p.leftOut(err) {
			return nil
		}
		class.Display = unnamed("class", e.Type)
	}
	base, baseName, known := r.p.knownBase(e.Type)
	if known && baseName == "" {
		return nil // no exception
	}
	r.bound(&e)
	t := &Thrown{at: obj, name: class.Display, object: e}
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
func (r *reading) keepFrames(t *Thrown) {
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
func (r *reading) others(t *Thrown, array arch.Addr, depth int) {
	if array == 0 {
		return
	}
	objects, all, err := r.p.managed.Threads.References(array, Most)
	t.leftOut = t.leftOut || err != nil || all > len(objects)
	r.otherExceptions(t, objects, depth)
}

// otherExceptions reads the objects in the array of an AggregateException.
func (r *reading) otherExceptions(t *Thrown, objects []arch.Addr, depth int) {
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

// IsException reports whether a class is or derives from System.Exception. known is false if not all classes can be
// read.
func (p *Reader) IsException(class arch.Addr) (is, known bool) {
	_, base, known := p.knownBase(class)
	return base != "", known
}

// knownBase returns the nearest of the classes above, among a class and the base classes, and the
// name; "" if there is none. known is false if not all classes can be read, as in a small dump.
func (p *Reader) knownBase(class arch.Addr) (base arch.Addr, name string, known bool) {
	for range maxBases {
		c, err := p.runtime.Names.Class(class)
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
		if class = p.managed.Threads.Base(class); class == 0 {
			return 0, "", false
		}
	}
	return 0, "", false
}

// ReadTwice reads exceptions until two readings are equal. False: no two readings were equal.
func (p *Reader) ReadTwice(find func() []arch.Addr) (all []*Thrown, stands bool) {
	return moment.Twice(p.moments, func() []*Thrown { return p.Read(find()) },
		func(a, b []*Thrown) bool { return reflect.DeepEqual(a, b) })
}

// unnamed stands for the name of a thing at an address.
func unnamed(what string, at arch.Addr) string { return fmt.Sprintf("[%s %v]", what, at) }

// lostException stands for an exception whose object is in memory that the dump lacks; nil: err has another reason.
func (p *Reader) lostException(obj arch.Addr, err error) *Thrown {
	if !p.leftOut(err) {
		return nil
	}
	return &Thrown{
		at: obj, name: unnamed("exception", obj), object: thread.ExceptionObject{Unread: true}, traceErr: err.Error(),
	}
}

// Thrown returns the exceptions in some objects that were thrown, and that did not lead to others of these.
func (p *Reader) Thrown(objects []arch.Addr) (found []arch.Addr) {
	all := p.Read(objects)
	led := map[arch.Addr]bool{}
	for _, t := range all {
		led[t.object.Inner] = true
	}
	for _, t := range all {
		if len(t.trace.Frames) > 0 && !led[t.at] {
			found = append(found, t.at)
		}
	}
	return found
}

// The exceptions of a native AOT program are read by our description of System.Exception. The stack trace is an array
// of addresses (System.Private.CoreLib, Exception.NativeAot.cs).

// Bounds of the texts of an exception, in UTF-16 units.
const (
	maxMessageAhead = 1 << 15
	maxParamAhead   = 1 << 12
)

var errTraceAhead = errors.New("the exception's stack trace is inconsistent")

// readAhead is read for an object of a native AOT program.
func (r *reading) readAhead(obj arch.Addr, depth int) *Thrown {
	objects := r.p.managed.Objects
	if objects == nil {
		return nil
	}
	class, err := objects.Class(obj)
	if err != nil {
		return r.p.lostException(obj, err)
	}
	if !class.Is(coreLib, exceptionName) {
		return nil
	}
	t := &Thrown{at: obj, name: class.Display}
	e := &t.object
	e.Type = class.Table
	e.Message, e.Cut, e.Unread = r.textAhead(obj, class, "_message", maxMessageAhead)
	e.Remote, _, _ = r.textAhead(obj, class, "_remoteStackTraceString", maxMessageAhead)
	e.Text, _, _ = r.textAhead(obj, class, "_stackTraceString", maxMessageAhead)
	if hr, err := objects.Uint32(obj, class, "_HResult"); err == nil {
		e.HResult = int32(hr)
	}
	e.Inner, _ = objects.Pointer(obj, class, "_innerException")
	r.bound(e)
	if t.trace, err = r.p.traceAhead(obj, class); err != nil {
		t.traceErr = err.Error()
	}
	r.keepFrames(t)
	if class.Is(coreLib, argumentException) && e.Message != "" {
		t.parameter, _, _ = r.textAhead(obj, class, "_paramName", maxParamAhead)
	}
	if t.inner = r.read(e.Inner, depth+1); t.inner == nil && e.Inner != 0 {
		t.leftOut = true
	}
	if class.Is(coreLib, aggregateException) {
		r.othersAhead(t, class, depth)
	}
	return t
}

// textAhead reads a string in a field. unread: there is a string, or there may be one, and it cannot be read.
func (r *reading) textAhead(obj arch.Addr, class *object.Class, field string, most int) (s string, cut, unread bool) {
	at, err := r.p.managed.Objects.Pointer(obj, class, field)
	if err != nil || at == 0 {
		return "", false, err != nil
	}
	s, cut, err = r.p.managed.Objects.Text(at, most)
	return s, cut, err != nil
}

// othersAhead is others.
func (r *reading) othersAhead(t *Thrown, class *object.Class, depth int) {
	array, err := r.p.managed.Objects.Pointer(t.at, class, "_innerExceptions")
	if err != nil || array == 0 {
		t.leftOut = t.leftOut || err != nil
		return
	}
	_, all, _, err1 := r.p.managed.Objects.Elements(array)
	list, err2 := r.p.managed.Objects.References(array, Most)
	t.leftOut = t.leftOut || err1 != nil || err2 != nil || all > len(list)
	r.otherExceptions(t, list, depth)
}

// traceAhead reads the stack trace of an exception.
func (p *Reader) traceAhead(obj arch.Addr, class *object.Class) (out thread.Trace, err error) {
	objects := p.managed.Objects
	array, err := objects.Pointer(obj, class, "_corDbgStackTrace")
	if err != nil || array == 0 {
		return out, err
	}
	n, err := objects.Uint32(obj, class, "_idxFirstFreeStackTraceEntry")
	if err != nil {
		return out, err
	}
	at, length, size, err := objects.Elements(array)
	if err != nil {
		return out, err
	}
	if size != 8 || int64(n) > int64(length) {
		return out, fmt.Errorf("%w: %d addresses in the place of %d, of %d bytes", errTraceAhead, n, length, size)
	}
	kept := min(n, thread.MaxTrace)
	b, err := target.NewReader(p.engine.Cache).Bytes(at, 8*int(kept))
	if err != nil {
		return out, err
	}
	return thread.Trace{Frames: thread.FramesOf(b), More: int(n - kept)}, nil
}
