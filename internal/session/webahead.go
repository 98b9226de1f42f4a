package session

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/target"
	"clrsnap/profile"
)

// In a native AOT program the objects of Kestrel are known by our description of the classes, and the objects of
// HttpClient are not read. No description says where a method that runs has its variables. So the words of a stack are
// tried: only an object that serves a request at this moment counts.

// maxServingWords bounds the words of a stack that are tried.
const maxServingWords = 1 << 12

// roleAhead is webRole for a method that the runtime of a native AOT program has suspended.
func (p *Process) roleAhead(m *async.Resumption) web.Role {
	var f profile.Frame
	p.NameResumedAhead(&f, m.IP)
	return web.RoleOf(f.Module, f.Method)
}

// webClassAhead is the class of an object for a requestWalk of a native AOT program.
func (w *requestWalk) webClassAhead(c *object.Class) taskClass {
	switch web.KindOf(c) {
	case web.None:
		return notWanted
	case web.Server:
		return serverClass
	}
	w.callsUnread = true
	return notWanted
}

// servedAhead returns the id of the request that a thread of a native AOT program runs; "": none.
func (p *Process) servedAhead(reader *web.Reader, x *Inspection) string {
	t := x.Thread
	i := slices.IndexFunc(t.Frames, func(f profile.Frame) bool {
		return f.Kind == profile.Managed && web.RoleOf(f.Module, f.Method) == web.Serving
	})
	if i < 0 || i+1 >= len(t.Frames) {
		return p.resumedFor(reader, t)
	}
	own, end := arch.Addr(t.Frames[i].SP), arch.Addr(t.Frames[i+1].SP)
	if id, found := p.servedIn(reader, x.Stack, own, end); found {
		return id
	}
	id, _ := p.servedIn(reader, x.Stack, arch.Addr(t.Frames[0].SP), own) // registers that other methods have saved
	return id
}

// servedIn returns the id of the only request whose object is among the words of a part of a stack; "": there is none,
// or there are several. found: there is at least one.
func (p *Process) servedIn(reader *web.Reader, stack *target.Stack, from, to arch.Addr) (id string, found bool) {
	tried := map[arch.Addr]bool{}
	for n := 0; from+8 <= to && n < maxServingWords; from, n = from+8, n+1 {
		word, ok := stack.Uint64(from)
		obj := arch.Addr(word)
		if !ok || obj == 0 || obj%8 != 0 || tried[obj] {
			continue
		}
		tried[obj] = true
		other := p.requestOf(reader, obj)
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
func (p *Process) requestOf(reader *web.Reader, obj arch.Addr) (id string) {
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
	if !p.moments.Read(read, nil) {
		return ""
	}
	return id
}

// resumedFor returns the id of the request of the methods that await a method which a thread has resumed; "": none.
func (p *Process) resumedFor(reader *web.Reader, t *profile.Thread) (id string) {
	resumes := func(f profile.Frame) bool { return f.Module == coreLib && ResumesMethods(f.Method) }
	if !slices.ContainsFunc(t.Frames, resumes) || !p.canResume(0) {
		return ""
	}
	read := func() error {
		id = ""
		newest, ok := p.newestDispatcher(arch.Addr(t.ThreadID))
		if !ok {
			return async.ErrNotDispatching
		}
		list, err := p.asyncReader().AllDispatching(newest, p.dispatcher.layout)
		if err != nil {
			return err
		}
		for _, d := range list {
			chain, err := p.asyncReader().Resuming(d)
			if err != nil {
				return err
			}
			obj, err := p.serving(chain.Steps)
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
	if !p.moments.Read(read, nil) {
		return ""
	}
	return id
}
