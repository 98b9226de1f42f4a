package waits

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// verbs name the operations on a socket, by a part of the method's name.
var verbs = []struct{ method, verb string }{
	{"Receive", "recv"}, {"Read", "recv"}, {"Send", "send"}, {"Write", "send"}, {"Accept", "accept"},
	{"Connect", "connect"},
}

// handleOf are the fields that lead to a socket's SafeSocketHandle (System.Net.Sockets, .NET 8 to 10).
var handleOf = map[string]string{
	"System.Net.Sockets.SocketAsyncContext": "_socket",
	"System.Net.Sockets.Socket":             "_handle",
}

const socketHandle = "System.Net.Sockets.SafeSocketHandle"

// socket explains a wait for a socket that does not block in the kernel: the socket has been used
// asynchronously, and the thread waits for an event. The thread of socket events sets the event.
func (e *explanation) socket() error {
	verb := "poll"
	for _, v := range verbs {
		if strings.Contains(e.s.Frames[e.p.outer].Method, v.method) {
			verb = v.verb
			break
		}
	}
	e.w.Target = verb
	handle, err := e.socketHandle()
	if err != nil || handle.class == nil || e.r.File == nil {
		return err
	}
	fd, err := e.r.Managed.Objects.Uint32(handle.obj, handle.class, "handle")
	if err == nil {
		e.w.Target = e.r.File(verb, int32(fd))
	}
	return err
}

// socketHandle returns the only SafeSocketHandle that the frames lead to. The class is nil if there
// is none, or if there are several.
func (e *explanation) socketHandle() (handle found, err error) {
	objects := e.r.Managed.Objects
	for _, f := range e.inFrames(false) {
		var class *object.Class
		at := arch.Addr(0)
		switch field := handleOf[f.class.Plain()]; {
		case f.class.Is(sockets, socketHandle):
			at, class = f.obj, f.class
		case field == "" || !f.class.Is(sockets, f.class.Plain()) || !e.r.isObject(f.obj):
			continue
		default:
			if at, err = objects.Pointer(f.obj, f.class, field); err != nil {
				return found{}, err
			}
			if class, err = objects.Class(at); err != nil {
				return found{}, err
			}
		}
		if !class.Is(sockets, socketHandle) || !e.r.isObject(at) {
			continue
		}
		if handle.class != nil && handle.obj != at {
			return found{}, nil
		}
		handle = found{at, class}
	}
	return handle, nil
}
