package exceptions

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/naming"
	"clrsnap/snapshot"
)

// Exceptions describes the exceptions in some objects. uncertain is the reason why the objects may
// be the wrong exceptions.
func (p *Reader) Exceptions(names naming.Stacks, objects []arch.Addr, uncertain string) []*snapshot.ExceptionInfo {
	var out []*snapshot.ExceptionInfo
	for _, t := range p.Read(objects) {
		out = append(out, t.Describe(names, uncertain))
	}
	return out
}

// Describe names the content of an exception. uncertain is the reason why the exception may be the wrong exception.
func (t *Thrown) Describe(names naming.Stacks, uncertain string) *snapshot.ExceptionInfo {
	e := describeThrown(names, t)
	e.Uncertain = uncertain
	return e
}

// describeThrown names the content of an exception.
func describeThrown(names naming.Stacks, t *Thrown) *snapshot.ExceptionInfo {
	o := &t.object
	e := &snapshot.ExceptionInfo{
		Type: t.name, Message: o.Message, NoMessage: o.Unread, CutMessage: o.Cut, HResult: o.HResult,
		More: t.trace.More, Remote: o.Remote + o.Text, NoFrames: t.traceErr, LeftOut: t.leftOut,
	}
	if t.parameter != "" { // the wording of System.Private.CoreLib (Arg_ParamName_Name in Strings.resx)
		e.Message += " (Parameter '" + t.parameter + "')"
	}
	if o.Text == "" { // else .NET prints Text, and no frames
		e.Frames = make([]snapshot.TraceFrame, 0, len(t.trace.Frames))
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
