// Package engine assembles the parts of a walk through the threads of one target: a page cache, the modules, the
// runtime and the walker. The target is a Source: a live process, a core dump or a recording. Package engine treats
// them alike.
package engine

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/aot"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/contract"
	"clrsnap/internal/locate"
	"clrsnap/internal/module"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
	"clrsnap/internal/unwind/amd64"
	"clrsnap/internal/walk"
)

// Source is a target.
type Source interface {
	target.Memory
	Arch() *arch.Arch
	// Executable is the path of the main program, as the target sees it.
	Executable() (string, error)
	Mappings() (target.Mappings, error)
	// OpenMapping opens the file behind a mapping.
	OpenMapping(*target.Mapping) (target.File, error)
}

// Engine walks the threads of one target. An Engine is not safe for concurrent use.
type Engine struct {
	Arch    *arch.Arch
	Cache   *target.Cache
	Modules *module.Set
	Maps    target.Mappings
	Runtime *clr.Runtime         // nil before Bind, and for native AOT programs
	Managed *clr.Managed         // part of Runtime, or of a native AOT program; nil: there is none
	Layout  *contract.Descriptor // the layout that Managed is bound to
	Own     *contract.Descriptor // the runtime's own; nil: there is none, or it cannot be read
	Walker  *walk.Walker
	Ahead   *aot.Names // of a native AOT program; nil: there are none, or they cannot be read
	Types   *aot.Types // of a native AOT program; nil: they are not known
	Changes int        // calls of UpdateModules that have found modules unloaded

	src Source
}

// cachePages bounds the cached pages: 4 MB. A walk needs some tens of pages; the list of a thousand threads reads
// each page once or twice.
const cachePages = 1024

// New returns an Engine that walks native frames; Bind adds managed frames.
func New(src Source) (*Engine, error) {
	e := &Engine{Arch: src.Arch(), Cache: target.NewCache(src, cachePages), src: src}
	e.Modules = module.NewSet(e.Arch, e.Cache, src.OpenMapping)
	if err := e.UpdateModules(); err != nil {
		e.Close()
		return nil, err
	}
	e.unbind()
	return e, nil
}

// unbind removes the runtime, so that only native frames are walked.
func (e *Engine) unbind() {
	e.Runtime, e.Managed, e.Layout = nil, nil, nil
	e.Walker = walk.New(walk.Options{Arch: e.Arch, Memory: e.Cache, Modules: e.Modules, Code: noCode{},
		Methods: noCode{}})
}

// Open is New and OpenRuntime.
func Open(src Source) (*Engine, error) {
	e, err := New(src)
	if err != nil {
		return nil, err
	}
	if _, err := e.OpenRuntime(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Locate looks for the runtime among the target's modules.
func (e *Engine) Locate() (*locate.Runtime, error) {
	exe, err := e.src.Executable()
	if err != nil {
		return nil, err
	}
	return locate.Find(e.Modules, exe)
}

// Bind adds the runtime that d describes.
func (e *Engine) Bind(d *contract.Descriptor) error {
	r, err := clr.New(e.Cache, d, e.Arch)
	if err != nil {
		return err
	}
	e.Runtime, e.Managed, e.Layout = r, &r.Managed, d
	e.Walker = walk.New(walk.Options{
		Arch: e.Arch, Memory: e.Cache, Modules: e.Modules,
		Code: r.Code, Methods: r.Names, Chain: r.Chain, Compile: e.compile,
	})
	return nil
}

func (e *Engine) compile(c *codemap.Code, ip arch.Addr) (*unwind.Step, error) {
	f := amd64.Function{Base: c.Base, Start: c.Start, End: c.End, UnwindInfo: c.UnwindInfo, MethodStart: c.MethodStart}
	return amd64.Compile(e.Cache, f, ip, func(at arch.Addr) bool {
		o, err := e.Runtime.Code.Lookup(at)
		return err == nil && o.Kind == c.Kind && o.MethodStart == c.MethodStart
	})
}

// Begin starts a new moment: the target has run, so everything that can have changed is read again.
func (e *Engine) Begin() {
	e.Cache.Invalidate()
	e.Walker.Begin()
	if e.Runtime != nil {
		e.Runtime.Begin()
	}
}

// Code returns the code at ip. The runtime changes its index during reads, so Code reads the index again if the code
// does not belong to the expected method.
func (e *Engine) Code(ip, method arch.Addr) (code codemap.Code, err error) {
	const tries = 3
	for range tries {
		if code, err = e.Runtime.Code.Lookup(ip); err == nil && code.MethodDesc == method {
			break
		}
		e.Cache.Invalidate()
	}
	return code, err
}

// UpdateModules reads the target's mappings again, and updates the loaded modules.
func (e *Engine) UpdateModules() error {
	maps, err := e.src.Mappings()
	if err != nil {
		return err
	}
	e.Maps = maps
	if e.Modules.Update(maps) {
		e.Changes++
		if e.Walker != nil {
			e.Walker.Forget()
		}
	}
	return nil
}

// Close releases the opened files.
func (e *Engine) Close() { e.Modules.Close() }

// Captured is the copy of a thread at one moment.
type Captured struct {
	Object  arch.Addr // of the runtime's Thread object; 0 for a native thread
	OSID    int       // of the thread, in the target's own PID namespace
	Context arch.Context
	Head    []byte // of the Thread object: thread.Store.HeadLen bytes
	Stack   *target.Stack
}

// ErrUncaptured: the tracker of an exception in flight was not captured with the throwing thread. Another capture may
// have the tracker.
var ErrUncaptured = errors.New(
	"some frames may already be unwound by an exception, because the exception's tracker was not captured")

// Thread decodes a capture. Info of the result is empty for a thread that is not, or no longer, one of the runtime's
// threads.
func (e *Engine) Thread(c *Captured) (walk.Thread, thread.Exception) {
	t := walk.Thread{Context: c.Context, Stack: c.Stack, Head: c.Head}
	var exception thread.Exception
	if c.Object == 0 || e.Managed == nil || len(c.Head) < e.Managed.Threads.HeadLen() {
		return t, exception
	}
	info := e.Managed.Threads.Parse(c.Head, c.Object)
	if info.OSID != c.OSID || !info.Alive() {
		return t, exception
	}
	t.Info = info
	if e.Runtime == nil {
		return t, exception // exceptions of native AOT programs are not read yet
	}
	if e.Runtime.Threads.Uncaptured(&info, c.Stack) {
		t.Gap = ErrUncaptured
	}
	if x, ok := e.Runtime.Threads.Exception(&info, c.Stack); ok {
		exception = x
		t.UnwoundLow, t.UnwoundHigh = x.Low, x.High
	}
	return t, exception
}

// noCode stands for the runtime of a process without a runtime.
type noCode struct{}

func (noCode) Lookup(arch.Addr) (codemap.Code, error) { return codemap.Code{}, nil }
func (noCode) IsFilter(*codemap.Code) (bool, error)   { return false, nil }
func (noCode) Hidden(methodDesc arch.Addr) (hidden, machinery bool, err error) {
	return false, false, nil
}
