// Package naming names what was walked: frames, methods, types and code. Package naming also finds source lines, the
// owners of assemblies, and the methods that were inlined at calls.
package naming

import (
	"time"

	"clrsnap/internal/assemblies"
	"clrsnap/internal/clr"
	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/source"
	"clrsnap/internal/target"
	"clrsnap/symbols"
)

// Options change how frames are named. The zero value has good defaults.
type Options struct {
	// ExactGenerics finds the instantiation of shared generic code in each frame, if the frame keeps the
	// instantiation.
	ExactGenerics bool
	// Lines finds the source lines of managed frames, if the PDBs of the assemblies are there.
	Lines bool
	// Symbols are further folders on this machine with PDBs and debug files.
	Symbols []string
	// Roots say where source files are on this machine.
	Roots source.Roots
	// Source is where symbols are fetched from if they are nowhere on this machine; nil: nowhere.
	Source symbols.Source
}

// Target is the process with the named code: a running process or a core dump.
type Target interface {
	engine.Source
	// OpenFile opens a regular file by its path in the process.
	OpenFile(path string) (target.File, error)
}

// Namer names the frames of one process. A Namer is not safe for concurrent use.
type Namer struct {
	// Set by New, and the same ever after.
	options Options
	target  Target
	engine  *engine.Engine
	runtime *clr.Runtime    // of engine; nil if there is none, and for native AOT programs
	found   *locate.Runtime // nil: there is none
	changes func() bool     // whether the target runs, and can change

	lines   *lines        // the lines known so far: set by what names frames; nil: no lines are wanted
	inlined *inlined      // the calls known so far: set by InlinedAt and profiled; nil: there is no runtime
	methods methodsOfCode // of code that stays: set by MethodOf

	owners *assemblies.Owners // set by the first call of Owner
	mapped time.Time          // when mappings were read for owners and lines: set by Remapped
	maps   target.Mappings    // the mappings read at mapped: set by Remapped
}

// New returns a Namer for the process of an engine. The engine has looked for a runtime, and has found the runtime
// found; nil: none. changes reports whether the process can change at present.
func New(o Options, of Target, e *engine.Engine, found *locate.Runtime, changes func() bool) *Namer {
	n := &Namer{options: o, target: of, engine: e, runtime: e.Runtime, found: found, changes: changes}
	e.Modules.Debug(n.debugging())
	if o.Lines {
		n.lines = newLines(source.New(sourceFiles{e.Cache, n}, o.Symbols, o.Roots, o.Source != nil))
	}
	if n.runtime != nil {
		n.inlined = &inlined{known: map[CallKey][]InlinedFrame{}}
	}
	return n
}

// Close releases what the Namer holds.
func (n *Namer) Close() {
	if n.lines != nil {
		n.lines.finder.Close()
	}
}

// coreLib is the assembly with the types that the runtime itself knows.
const coreLib = "System.Private.CoreLib"
