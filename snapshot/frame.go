package snapshot

import "strings"

// Kind tells managed from native frames.
type Kind string

// Async is the kind of a frame that is not on the stack: of an async method that awaits the method above. The frame
// has neither IP nor SP, and its line is the line of the await. A method of .NET with this kind, for example
// Task.WhenAll, joins several tasks.
const Async Kind = "async"

// The kinds of frame.
const (
	Managed Kind = "managed"
	Native  Kind = "native"
)

// Frame is one frame of a stack, leaf first.
type Frame struct {
	Kind       Kind
	FunctionID uint64 // address of the MethodDesc; 0 for native frames
	IP, SP     uint64
	Method     string // exact metadata name, or the demangled native symbol
	Display    string // friendly name, full form without the parameters
	Short      string // friendly name without namespaces
	Signature  string // parameter types in parentheses
	Module     string // assembly or native module, without its folder
	// bytes from the start of the method or symbol to IP; without a symbol, from the start of the module
	Offset   uint64
	Tier     string      // "tier-0", "tier-1", "ReadyToRun", "OSR", "dynamic", "stub", …; managed frames only
	Owner    Origin      // as in Function
	Line     *SourceLine // nil: not known
	Inlined  bool        // without a frame of its own: the code is part of the next frame that is not Inlined
	Generics Generics    // of shared generic code; empty: the code is not shared
	Waiter   *ThreadRef  // of kind Async: the thread that waits for the task of the method above; nil: a method
	// of native functions without a symbol: the exported function before, and the distance; "" if the distance is
	// large
	Nearest string
	// the name may come from another build of the file than the program has loaded; the name ends in (?)
	Unproved bool
}

// Generics says what the name of a frame of shared generic code tells. The runtime compiles one piece of code for all
// type arguments that are reference types.
type Generics string

// The kinds of name of shared generic code.
const (
	ExactGenerics  Generics = "exact"  // the type arguments are those of the running instantiation
	SharedGenerics Generics = "shared" // System.__Canon stands for each type argument that is a reference type
)

// SourceLine is a place in a source file.
type SourceLine struct {
	File        string // as the compiler wrote it: a path on the machine that built the program
	Line        int    // counted from 1
	Column      int    // counted from 1, in UTF-16 code units
	URL         string // the address of the file by SourceLink; empty: none
	Approximate bool   // the code itself belongs to no line: this line is the line before
}

// Same reports whether both are the same line of the same file, or both are nil.
func (l *SourceLine) Same(o *SourceLine) bool {
	if l == nil || o == nil {
		return l == o
	}
	return l.File == o.File && l.Line == o.Line
}

// Kernel is the kind of frames inside the operating system's kernel. Only
// recordings have them.
const Kernel Kind = "kernel"

// Event is the kind of a function that is not code but names an event. An Event is the leaf of the event's
// stack. The name is the type of the allocated object or of the exception (with its assembly as Module), the
// method or the thread that held the lock, the started thread, or the garbage collection. Only recordings have
// Event frames. A wait for a lock has two: the leaf says who held the lock, and the leaf's caller names the
// lock (with the assembly of the lock's type as Module).
const Event Kind = "event"

// Origin says whose code a function is.
type Origin string

// The origins.
const (
	OfUser      Origin = "user"      // the program's own
	OfPackage   Origin = "package"   // of a library that the program uses, for example from NuGet
	OfFramework Origin = "framework" // .NET's
	OfNative    Origin = "native"
	OfKernel    Origin = "kernel"
	OfEvent     Origin = "event" // not code: a function of kind Event
)

// Origin returns whose code f's function is.
func (f *Frame) Origin() Origin { return OriginOf(f.Kind, f.Module, f.Owner) }

// OriginOf returns whose code a module has. owner: whose the module is, if the name does not say so.
func OriginOf(kind Kind, module string, owner Origin) Origin {
	switch kind {
	case Event:
		return OfEvent
	case Kernel:
		return OfKernel
	case Native:
		return OfNative
	}
	switch owner {
	case OfUser, OfPackage, OfFramework:
		return owner
	}
	if Framework(module) {
		return OfFramework
	}
	return OfUser
}

// Framework reports whether an assembly belongs to .NET, by the assembly's name. Framework is true for "", the
// assembly of dynamic methods: most dynamic methods are the framework's.
func Framework(assembly string) bool {
	return assembly == "System" || strings.HasPrefix(assembly, "System.") ||
		strings.HasPrefix(assembly, "Microsoft.") ||
		assembly == "mscorlib" || assembly == "netstandard" || assembly == ""
}
