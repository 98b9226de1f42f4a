// Package inlining finds the methods that were inlined between a method and the callee of a call in its code.
//
// A compiled method has no record of the places of inlined methods, unless the target runs with
// DOTNET_RichDebugInfo=1 (ilmap.Tree). But the runtime remembers pairs of inlined method and caller. The record is
// for profilers that replace methods, and have to find all copies of a method. For JIT code, the record is a hash
// table in each module (jit.go); for code compiled ahead of time, a section of the image (r2r.go). No record has the
// places. This package proves them (prove.go): from the callee of the machine's call instruction, and from the IL of
// the method and of the methods inlined into it.
//
// Sources (dotnet/runtime): src/coreclr/vm/inlinetracking.h and .cpp (JITInlineTrackingMap,
// PersistentInlineTrackingMapR2R2), crossloaderallocatorhash.h and .inl, inc/shash.h, arraylist.h,
// vm/nativeformatreader.h, vm/jitinterface.cpp (CEEInfo::reportInliningDecision), ECMA-335 II.25.4 and III.
//
// All memory is hostile: lists are bounded, and contradictions are errors. An error means "not known": the package
// then claims nothing.
package inlining

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Definition is a method's definition in metadata, whatever the type arguments.
type Definition struct {
	Module arch.Addr
	RID    uint32 // row in the MethodDef table
}

// Errors of this package.
var (
	// ErrUnknown: the methods inlined into a method are not known.
	ErrUnknown = errors.New("it is not known what was inlined")
	// ErrWork: the proofs of a moment would take too long. A later moment may have the proof.
	ErrWork = errors.New("the methods on the stacks have too many calls")
	// ErrCorrupt: the runtime's records contradict each other, or change during the read.
	ErrCorrupt = errors.New("the runtime's record of inlined methods is inconsistent")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Reader finds inlined methods in one runtime's code. A Reader is not safe for concurrent use.
type Reader struct {
	mem     *target.Reader
	refresh func() // drops the cache of mem, so that memory is read anew; nil: mem never changes
	code    *codemap.Map
	methods *method.Reader
	names   *name.Namer
	l       layout
	jit     jitRecord
	images  map[arch.Addr]imageRecord // by ReadyToRun image
	pairs   int                       // of images
	known   map[Definition]*node      // of code that stays
	sites   int                       // of known
	work    work                      // at this moment
}

type layout struct {
	AppDomain  arch.Addr `global:"AppDomain,optional"`
	Assemblies uint32    `clr:"AppDomain.DomainAssemblyList,optional"`
	Direct     uint32    `clr:"AppDomain.AssemblyList,optional"` // .NET 11: of Assemblies themselves
	AsmModule  uint32    `clr:"Assembly.Module,optional"`
	ListCount  uint32    `clr:"ArrayListBase.Count,optional"`
	ListFirst  uint32    `clr:"ArrayListBase.FirstBlock,optional"`
	BlockNext  uint32    `clr:"ArrayListBlock.Next,optional"`
	BlockSize  uint32    `clr:"ArrayListBlock.Size,optional"`
	BlockStart uint32    `clr:"ArrayListBlock.ArrayStart,optional"`

	ModAllocator uint32 `clr:"Module.LoaderAllocator,optional"`
	ModInliners  uint32 `clr:"Module.JitInlinerTrackingMap,optional"`
}

// hasJIT reports whether the record of the JIT can be read.
func (l *layout) hasJIT() bool {
	return l.hasAssemblies() && l.ModAllocator != contract.Absent && l.ModInliners != contract.Absent
}

// hasAssemblies reports whether the list of assemblies can be read.
func (l *layout) hasAssemblies() bool {
	return l.AppDomain != 0 && (l.Assemblies != contract.Absent || l.Direct != contract.Absent) &&
		l.AsmModule != contract.Absent &&
		l.ListCount != contract.Absent && l.ListFirst != contract.Absent && l.BlockNext != contract.Absent &&
		l.BlockSize != contract.Absent && l.BlockStart != contract.Absent
}

// New binds a reader to the runtime that d describes.
func New(
	mem target.Memory, d *contract.Descriptor, code *codemap.Map, methods *method.Reader, names *name.Namer,
) (*Reader, error) {
	r := &Reader{
		mem: target.NewReader(mem), code: code, methods: methods, names: names,
		images: map[arch.Addr]imageRecord{}, known: map[Definition]*node{},
		work: maxWork,
	}
	if c, ok := mem.(interface{ Invalidate() }); ok {
		r.refresh = c.Invalidate
	}
	return r, d.Bind(&r.l)
}

// Begin starts a new moment: the record of the JIT may have grown.
func (r *Reader) Begin() { r.jit, r.work = jitRecord{}, maxWork }

// Definition returns the definition of a method; false: it has none.
func (r *Reader) Definition(desc arch.Addr) (Definition, bool, error) {
	m, err := r.methods.Read(desc)
	if err != nil || !m.HasMetadata() || m.Module == 0 || m.RID == 0 {
		return Definition{}, false, err
	}
	return Definition{m.Module, m.RID}, true, nil
}

// inlinees returns the methods inlined into code, directly or through others. The record covers all versions and
// instantiations of the method, so the given code may lack an inlined method.
func (r *Reader) inlinees(c *codemap.Code, of Definition) ([]Definition, error) {
	switch c.Kind {
	case codemap.JIT:
		return r.jitInlinees(c.MethodDesc)
	case codemap.ReadyToRun:
		return r.imageInlinees(c, of)
	}
	return nil, ErrUnknown
}
