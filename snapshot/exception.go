package snapshot

// ExceptionInfo is a managed exception, with its inner exceptions.
type ExceptionInfo struct {
	Type       string // with its namespace
	Message    string // empty: the type's default message
	HResult    int32
	Inner      *ExceptionInfo   // the exception that led to this one; nil: none
	Others     []*ExceptionInfo // of an AggregateException: its inner exceptions besides Inner
	NoMessage  bool             // the exception has a message, but the message could not be read
	CutMessage bool             // Message is only the beginning

	Frames []TraceFrame // the exception's own stack trace: the frame that threw first
	More   int          // frames after these, left out
	Remote string       // a stack trace that the exception had as text before it was thrown here
	// NoFrames is why the stack trace, or a part of it, could not be read; empty: all was read.
	NoFrames string

	// LeftOut: inner exceptions are missing here, because there are too many, or because an exception that is here
	// would come once more.
	LeftOut bool
	// Uncertain is why this exception may not belong to the thread's stack; empty: the exception does. A running
	// process changes during the reading.
	Uncertain string
}

// Shown is the exception's own stack trace as .NET prints the trace: without hidden frames.
func (x *ExceptionInfo) Shown() (out []Frame) {
	for i := range x.Frames {
		if f := &x.Frames[i]; !f.Hidden {
			out = append(out, f.Frame)
		}
	}
	return out
}

// TraceFrame is a frame of an exception's stack trace. IP is an address within the instruction that the exception
// came through. The IP of a thread's frame is different: the address behind a call. IP is 0 if no address is known,
// and so are Offset and Tier.
type TraceFrame struct {
	Frame
	Hidden    bool // .NET leaves the frame out when it prints the exception
	EndsTrace bool // the next frame is of the code that threw the exception again
}

// FailFast is a call of Environment.FailFast, which ends the process.
type FailFast struct {
	Message   string         // empty: the call had no message
	Unknown   bool           // the arguments of the call could not be found
	Exception *ExceptionInfo // the exception argument, which can be Thread.Exception; nil: none
}
