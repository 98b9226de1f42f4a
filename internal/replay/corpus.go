// Package replay keeps moments of a target in a file: the pages that walks read, the registers
// and stacks of threads, and their right frames. A corpus can be walked again anywhere, without
// the process, and must give the same frames. So a disagreement that a live process shows once in
// a million instructions becomes a test that fails until the fault is mended, and the fault never
// comes back.
//
// The folder testdata has the threads of the test program, each blocked in a different way
// (scenarios.rec, scenarios-net9.rec), and moments of single-stepped threads (steps.rec): prologs and
// epilogs, funclets, stubs, hijacked returns, restored contexts, clones, signal handlers and
// exceptions in flight. A test walks each moment in four ways: every frame, with funclets folded, and
// as DoStackSnapshot in both modes. A recorder removes the folders of the target's files, and Minimize
// blanks memory without influence on a walk. To record anew:
//
//	go test -tags live -run TestRecord ./internal/replay -update
//	make proof FORM=full PROOF=singlestep TESTFLAGS="-steps 1900000 -collect $PWD/steps.rec"
//
// The second command collects moments while single-stepping.
//
// A corpus has memory and files of the target, byte for byte. Do not hand around corpora of
// programs with secrets.
package replay

import (
	"fmt"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/target/recorded"
)

// Corpus is moments of one or more targets with common files.
type Corpus struct {
	Machine arch.Machine
	Files   []*recorded.File
	Moments []*Moment
}

// Moment is one moment of a target.
type Moment struct {
	Note       string // the subject of the moment
	Executable string
	Mappings   target.Mappings
	Memory     recorded.Pages
	Fragments  []target.Region // readable pieces of pages that are not readable as a whole
	Threads    []*Thread
}

// Thread is a captured thread and the required results of its walks.
type Thread struct {
	Name    string
	Object  arch.Addr // the runtime's Thread object; 0 for a native thread
	OSID    int       // in the target's own PID namespace
	Context arch.Context
	Head    []byte // of the Thread object
	Stack   []target.Region
	Walks   map[How]Walk
}

// How is a way to walk a thread.
type How string

// The ways: every frame, frames with funclets folded into their methods, and DoStackSnapshot in
// its two modes.
const (
	Unwind     How = "unwind"
	Fold       How = "fold"
	Documented How = "as documented"
	CoreCLR    How = "as CoreCLR"
)

// Ways are all of them.
var Ways = []How{Unwind, Fold, Documented, CoreCLR}

// Walk is the result of one walk.
type Walk struct {
	Frames   []Frame
	Complete bool
	Error    string // why the walk is not complete
}

// Frame is one frame of a result.
type Frame struct {
	Kind       Kind
	IP, SP     arch.Addr
	MethodDesc arch.Addr // of managed frames
}

// Kind is the kind of a frame, as walk.Kind.
type Kind uint8

func (k Kind) String() string {
	if names := [...]string{"native", "managed", "stub"}; int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Equal reports whether two walks reported the same frames and the same certainty.
func (w *Walk) Equal(o *Walk) bool {
	if w.Complete != o.Complete || len(w.Frames) != len(o.Frames) {
		return false
	}
	for i := range w.Frames {
		if w.Frames[i] != o.Frames[i] {
			return false
		}
	}
	return true
}

func (w *Walk) String() string {
	var b strings.Builder
	for _, f := range w.Frames {
		fmt.Fprintf(&b, "  %v %-7v %v", f.SP, f.Kind, f.IP)
		if f.MethodDesc != 0 {
			fmt.Fprintf(&b, " MethodDesc %v", f.MethodDesc)
		}
		b.WriteByte('\n')
	}
	if w.Complete {
		b.WriteString("  complete\n")
	} else {
		fmt.Fprintf(&b, "  incomplete: %s\n", w.Error)
	}
	return b.String()
}
