package awaits

import (
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/naming"
	"clrsnap/internal/walk"
)

// Code is the meaning of the code at an instruction for async methods.
type Code struct {
	runner bool           // framework code that leads to the call of a MoveNext
	box    bool           // a method of a box
	serves bool           // the web server's method that serves requests, without a state machine
	resume bool           // resumes methods suspended by the runtime
	table  arch.Addr      // of a MoveNext: the type of the state machine
	place  ilmap.Variable // location of the first argument
	known  bool           // place is valid
}

// Site is a frame that runs an async method.
type Site struct {
	Below    int       // index of the frame above which the awaiting methods are shown
	Argument arch.Addr // first argument of the frame: state machine, box or task; 0: unknown
	Table    arch.Addr // of a MoveNext: the type of the state machine; 0: Argument is something else
	of       arch.Addr // of a box: the state machine type of the MoveNext called by the box; 0: unknown
	Serves   bool      // Argument is the object of the server
	task     int       // index of the frame that runs the delegate of the task in Argument; 0: none
	resumed  bool      // the caller is framework code that resumes a suspended method
	resumes  *resumingFrame
}

// maxAsyncSites bounds the async methods examined in one stack.
const maxAsyncSites = 32

// Asyncs finds the async methods in a walk.
type Asyncs struct {
	Sites  []Site
	Of     arch.Addr // the walked Thread of the runtime, if the walk does not know the Thread; 0: none
	runner int       // index where the latest unbroken run of runner frames begins; -1: no run

	task int // likewise of the frames between a task's delegate and the code that runs the task

	moves int       // index of the latest frame of a MoveNext
	table arch.Addr // state machine type of that MoveNext; 0: there was none
}

// Begin begins another walk.
func (a *Asyncs) Begin() { a.Sites, a.runner, a.task, a.table = a.Sites[:0], -1, -1, 0 }

// The prefixes of the .NET methods that call a MoveNext.
const (
	boxMethods     = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1."
	pooledMethods  = "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder`1+StateMachineBox`1."
	listenedBoxes  = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncProfilerAsyncStateMachineBox`1."
	contextMethods = "System.Threading.ExecutionContext.Run"
)

// AsyncCode describes the code of a managed frame with the name fr; false: the code has nothing to
// do with async methods.
func (p *Program) AsyncCode(f *walk.Frame, fr *naming.NamedFrame) (c Code, ok bool) {
	core := fr.Module == coreLib
	c.box = core && (strings.HasPrefix(fr.Method, boxMethods) || strings.HasPrefix(fr.Method, pooledMethods) ||
		strings.HasPrefix(fr.Method, listenedBoxes))
	c.resume = core && ResumesMethods(fr.Method) && p.CanResume(fr.Of.MethodTable)
	c.runner = c.box || c.resume || core && strings.HasPrefix(fr.Method, contextMethods) || LiesBetween(fr.Method)
	moves := !c.box && strings.HasSuffix(fr.Method, "MoveNext")
	c.serves = !moves && web.RoleOf(fr.Module, fr.Method) == web.Serving
	if !c.runner && !moves && !c.serves {
		return c, false
	}
	if moves {
		c.table = fr.Of.MethodTable
	}
	if c.box || moves || c.serves || c.resume {
		c.place, c.known = p.VariableOf(f, ilmap.ThisVariable)
	}
	return c, true
}

// Frame records a frame of a walk. c is the meaning of the frame's code; nil: none.
func (a *Asyncs) Frame(f *walk.Frame, c *Code, index int) {
	site, ok := a.site(c, index)
	if !ok {
		return
	}
	if site.Argument, _, ok = naming.ValueAt(f, &c.place); !c.known {
		site.Argument = 0
	}
	if c.resume {
		site.resumes = resumingFrameOf(f, a.Of)
		ok = site.resumes != nil
	}
	if ok {
		a.Sites = append(a.Sites, site)
	}
}

// Reported records a frame, like Frame, but somebody else has read the argument; 0: nobody has.
// Reported reports whether the frame runs an async method. A state machine is on a stack only once:
// where a second frame reports the same state machine, the value comes from a register that was not
// restored. The argument of a frame that resumes methods is the frame's dispatcher structure.
func (a *Asyncs) Reported(c *Code, index int, argument arch.Addr) bool {
	site, ok := a.site(c, index)
	if !ok || argument == 0 {
		return ok
	}
	if site.Argument = argument; c.resume {
		site.resumes = &resumingFrame{}
	}
	again := func(s Site) bool { return s.Table != 0 && s.Argument == argument }
	if site.Table == 0 || !slices.ContainsFunc(a.Sites, again) {
		a.Sites = append(a.Sites, site)
	}
	return true
}

// site returns the site of a frame, without the argument; false: the frame is no site.
func (a *Asyncs) site(c *Code, index int) (s Site, ok bool) {
	if c == nil || !c.runner {
		a.runner = -1
	} else if a.runner < 0 {
		a.runner = index
		if n := len(a.Sites); n > 0 && a.Sites[n-1].Below == index {
			a.Sites[n-1].resumed = true
		}
	}
	if c != nil && c.table != 0 {
		a.moves, a.table = index, c.table
	}
	if c == nil || !c.known && !c.resume || len(a.Sites) == maxAsyncSites {
		return s, false
	}
	s = Site{Below: index + 1, Table: c.table, Serves: c.serves}
	if c.box || c.resume {
		s.Below = a.runner
		if a.moves+1 == a.runner {
			s.of = a.table
		}
	}
	return s, true
}

// NoteFrame records in a a frame of the walk with the name fr.
func (p *Program) NoteFrame(a *Asyncs, f *walk.Frame, fr *naming.NamedFrame, index int) {
	a.taskFrame(&fr.Frame, index)
	if f.Kind == walk.Managed {
		if c, ok := p.AsyncCode(f, fr); ok {
			a.Frame(f, &c, index)
			return
		}
	}
	a.Frame(f, nil, index)
}
