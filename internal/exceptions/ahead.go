package exceptions

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
)

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
