package requests

import (
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/session"
)

// The async methods of ASP.NET Core's server and of HttpClient, and the methods' variables. In a state machine,
// fields have the names of the variables. Of a method suspended by the runtime itself, a saved object is the variable
// if no other saved object has the variable's class.

// webRole says what an async method does for a request or a call, and whether the role may change: the code can be
// unloaded.
func webRole(p *session.Process, s *async.Step) (role web.Role, passing bool) {
	switch {
	case s.Box != nil:
		return web.RoleOf(p.AsyncReader().MachineName(s.Box.Machine)), s.Box.Machine.Passing
	case s.Resumption != nil && p.Runtime == nil:
		return roleAhead(p, s.Resumption), false
	case s.Resumption != nil:
		m, passing, ok := p.ResumedMethod(s.Resumption)
		if !ok {
			return web.NoRole, true
		}
		n, err := p.Runtime.Names.Method(&m, passing)
		if err != nil {
			return web.NoRole, true
		}
		return web.RoleOf(n.Assembly, n.Exact), passing
	}
	return web.NoRole, true
}

// webLocal reads a variable of a suspended method: the first variable of the name that is not null. 0: there is none.
func webLocal(p *session.Process, s *async.Step, l web.Local) (out arch.Addr, err error) {
	if s.Box != nil {
		values, err := p.AsyncReader().Locals(s.Box, l.Name())
		if err != nil {
			return 0, err
		}
		for _, v := range values {
			if v != 0 {
				return v, nil
			}
		}
		return 0, nil
	}
	if s.Resumption == nil {
		return 0, nil
	}
	several := false
	err = p.AsyncReader().Saved(s.Resumption, func(obj arch.Addr, c *object.Class) {
		if obj == out || !l.Is(c) {
			return
		}
		several = several || out != 0
		out = obj
	})
	if several {
		out = 0
	}
	return out, err
}

// webTimer returns the timer of a call's own timeout, by a method of HttpClient. 0: there is none. The timer that
// ends all calls of a client does not count.
func webTimer(p *session.Process, reader *web.Reader, s *async.Step) (arch.Addr, error) {
	if s.Resumption != nil {
		return savedTimer(p, reader, s.Resumption)
	}
	source, err := webLocal(p, s, web.TimeoutVar)
	if err != nil || source == 0 {
		return 0, err
	}
	if shared, err := webLocal(p, s, web.SharedVar); err != nil || source == shared {
		return 0, err
	}
	return reader.Timer(source)
}

// savedTimer is webTimer of a method suspended by the runtime itself. HttpClient links a call's source to the source
// that ends all calls of the client, and the method has saved both. HttpClient does not link the program's own
// source.
func savedTimer(p *session.Process, reader *web.Reader, m *async.Resumption) (arch.Addr, error) {
	var sources []arch.Addr
	err := p.AsyncReader().Saved(m, func(obj arch.Addr, c *object.Class) {
		if web.TimeoutVar.Is(c) {
			sources = append(sources, obj)
		}
	})
	if err != nil {
		return 0, err
	}
	for _, s := range sources {
		linked, err := reader.LinkedTo(s, sources)
		if err != nil {
			return 0, err
		}
		if linked {
			return reader.Timer(s)
		}
	}
	return 0, nil
}

// began returns when a call began, by a method that makes the call: HttpClient's timeout counts from then on, and an
// activity begins with the call. Zero: the method does not know.
func (w *walk) began(s *async.Step, role web.Role) (time.Time, error) {
	if role == web.Tracing {
		activity, err := webLocal(w.p, s, web.SpanVar)
		if err != nil || activity == 0 {
			return time.Time{}, err
		}
		return w.web.Activity(activity)
	}
	timer, err := webTimer(w.p, w.web, s)
	if err != nil || timer == 0 || w.p.RunningProcess() == nil {
		return time.Time{}, err
	}
	class, err := w.p.Managed.Objects.Class(timer)
	if err != nil {
		return time.Time{}, err
	}
	ticks, err := w.p.Managed.Objects.Pointer(timer, class, "_startTicks")
	if err != nil || ticks == 0 {
		return time.Time{}, err
	}
	return w.boot.Add(time.Duration(ticks) * time.Millisecond), nil
}

// role is webRole; the role of code that stays is found once.
func (w *walk) role(s *async.Step) web.Role {
	key := roleKey(s)
	if role, ok := w.roles[key]; ok && key != 0 {
		return role
	}
	role, passing := webRole(w.p, s)
	if !passing && key != 0 && len(w.roles) < maxRoles {
		w.roles[key] = role
	}
	return role
}

// maxRoles bounds the remembered roles.
const maxRoles = 1 << 16

// roleKey is the same for steps of the same method: the type of a state machine, or where the method goes on.
func roleKey(s *async.Step) arch.Addr {
	switch {
	case s.Box != nil:
		return s.Box.Machine.Table
	case s.Resumption != nil:
		return s.Resumption.IP
	}
	return 0
}
