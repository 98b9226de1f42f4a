package requests

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/session"
	"clrsnap/internal/target"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// In a native AOT program the objects of Kestrel are known by our description of the classes, and the objects of
// HttpClient are not read. No description says where a method that runs has its variables. So the words of a stack are
// tried: only an object that serves a request at this moment counts.

// maxServingWords bounds the words of a stack that are tried.
const maxServingWords = 1 << 12

// roleAhead is webRole for a method that the runtime of a native AOT program has suspended.
func roleAhead(p *session.Process, m *async.Resumption) web.Role {
	var f snapshot.Frame
	p.NameResumedAhead(&f, m.IP)
	return web.RoleOf(f.Module, f.Method)
}

// webClassAhead is the class of an object for a walk of a native AOT program.
func (w *walk) webClassAhead(c *object.Class) tasks.Class {
	switch web.KindOf(c) {
	case web.None:
		return tasks.NotWanted
	case web.Server:
		return serverClass
	}
	w.callsUnread = true
	return tasks.NotWanted
}

// servedAhead returns the id of the request that a thread of a native AOT program runs; "": none.
func servedAhead(p *session.Process, reader *web.Reader, x *session.Inspection) string {
	t := x.Thread
	i := slices.IndexFunc(t.Frames, func(f snapshot.Frame) bool {
		return f.Kind == snapshot.Managed && web.RoleOf(f.Module, f.Method) == web.Serving
	})
	if i < 0 || i+1 >= len(t.Frames) {
		return resumedFor(p, reader, t)
	}
	own, end := arch.Addr(t.Frames[i].SP), arch.Addr(t.Frames[i+1].SP)
	if id, found := servedIn(p, reader, x.Stack, own, end); found {
		return id
	}
	id, _ := servedIn(p, reader, x.Stack, arch.Addr(t.Frames[0].SP), own) // registers that other methods have saved
	return id
}

// servedIn returns the id of the only request whose object is among the words of a part of a stack; "": there is none,
// or there are several. found: there is at least one.
func servedIn(p *session.Process, reader *web.Reader, stack *target.Stack, from, to arch.Addr) (id string, found bool) {
	tried := map[arch.Addr]bool{}
	for n := 0; from+8 <= to && n < maxServingWords; from, n = from+8, n+1 {
		word, ok := stack.Uint64(from)
		obj := arch.Addr(word)
		if !ok || obj == 0 || obj%8 != 0 || tried[obj] {
			continue
		}
		tried[obj] = true
		other := requestOf(p, reader, obj)
		if other == "" || other == id {
			continue
		}
		if found {
			return "", true
		}
		id, found = other, true
	}
	return id, found
}

// requestOf returns the id of the request that an object of Kestrel serves; "": none, or the object is another.
func requestOf(p *session.Process, reader *web.Reader, obj arch.Addr) (id string) {
	if !reader.IsServer(obj) {
		return ""
	}
	read := func() error {
		id = ""
		r, err := reader.Request(obj)
		if err == nil && r != nil {
			id = r.ID
		}
		return err
	}
	if !p.Moments().Read(read, nil) {
		return ""
	}
	return id
}

// resumedFor returns the id of the request of the methods that await a method which a thread has resumed; "": none.
func resumedFor(p *session.Process, reader *web.Reader, t *snapshot.Thread) (id string) {
	resumes := func(f snapshot.Frame) bool { return f.Module == coreLib && awaits.ResumesMethods(f.Method) }
	if !slices.ContainsFunc(t.Frames, resumes) || !p.CanResume(0) {
		return ""
	}
	read := func() error {
		id = ""
		list, err := p.Dispatching(arch.Addr(t.ThreadID))
		if err != nil {
			return err
		}
		for _, d := range list {
			chain, err := p.AsyncReader().Resuming(d)
			if err != nil {
				return err
			}
			obj, err := serving(p, chain.Steps)
			if err != nil {
				return err
			}
			if obj != 0 {
				id, err = reader.ID(obj)
				return err
			}
		}
		return nil
	}
	if !p.Moments().Read(read, nil) {
		return ""
	}
	return id
}
