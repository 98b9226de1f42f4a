// Package awaits finds the async methods on a stack, and reads from the heap the methods that await them.
//
// After an await, the thread pool most often resumes an async method. The awaiting method is then not on the stack, but
// on the heap (package async). The first argument of the async method's frame is the state machine; the first argument
// of a box method's frame is the box.
package awaits

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/permits"
	"clrsnap/internal/engine"
	"clrsnap/internal/moment"
	"clrsnap/internal/naming"
	"clrsnap/internal/target"
)

// Memory is the memory of a program.
type Memory interface {
	target.Memory
	// Relocated returns the word at an address in an image that the memory lacks, by the image's file.
	Relocated(at arch.Addr) (arch.Addr, bool)
}

// Program reads the async methods of one program. A Program is not safe for concurrent use.
type Program struct {
	*naming.Namer
	// Set by New, and the same ever after.
	engine  *engine.Engine
	runtime *clr.Runtime // of engine
	managed *clr.Managed // of engine
	memory  Memory
	moments *moment.Reader

	// Readers and facts that are found at the first use, and kept: each by the method that needs it.
	async      *async.Reader
	permits    *permits.Reader
	dispatcher *dispatcher
	savings    map[savingKey]saving // where suspended methods have their contexts
	callers    map[caller]bool      // whether methods call methods of a class
}

// New returns the Program of an engine.
func New(names *naming.Namer, e *engine.Engine, memory Memory, moments *moment.Reader) *Program {
	return &Program{
		Namer: names, engine: e, runtime: e.Runtime, managed: e.Managed, memory: memory, moments: moments,
	}
}

// The classes of System.Private.CoreLib that are known by name.
const (
	coreLib       = "System.Private.CoreLib"
	exceptionName = "System.Exception"
)

// AsyncReader reads the objects of async methods.
func (p *Program) AsyncReader() *async.Reader {
	if p.async == nil {
		// None of the fields that New binds is required: there is no error.
		var names async.Machines = p.engine.Types
		if p.runtime != nil {
			names = p.runtime.Names
		}
		p.async, _ = async.New(p.engine.Layout, p.managed.Objects, names)
		p.async.ResumeInfoBy(p.resumeWord)
		if p.runtime != nil {
			p.async.ContextsBy(p.savedContext)
		}
	}
	return p.async
}

// resumeWord reads a word of the constant data by which methods are resumed. For code compiled
// ahead of time the word is in the image, and some dumps lack this part of the image.
func (p *Program) resumeWord(at arch.Addr) (arch.Addr, error) {
	word, err := p.managed.Objects.Word(at)
	if err != nil {
		if relocated, ok := p.memory.Relocated(at); ok {
			return relocated, nil
		}
	}
	return word, err
}

// dispatcher is where threads keep the resumed methods.
type dispatcher struct {
	field  uint32 // offset of the address of the newest structure in a thread's static fields
	layout async.DispatcherLayout
}

// methodPlace is a method: the module, and the row in the MethodDef table.
type methodPlace struct {
	module arch.Addr
	rid    uint32
}
