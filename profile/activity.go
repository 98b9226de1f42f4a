package profile

import (
	"time"

	"clrsnap/snapshot"
)

// Activity is what a process did during the look, whether or not anything is wrong.
type Activity struct {
	CPU                 *ActivityCPU     // nil: not known
	Memory              *snapshot.Memory // at the end; nil: not known
	MemoryGrown         *snapshot.Memory // the growth of each part in MemoryOver, negative if it shrank; nil: not known
	MemoryOver          time.Duration
	MemoryLimit         *MemoryLimit // nil: the control groups have no limit, or the limit is not known
	GCShare             float64      // of the time during which the program stood still for collections; -1: not known
	ExceptionsPerSecond float64      // -1: not known
	RethrowsPerSecond   float64      // as in ModeStats.Rethrown
	MostExceptions      string       // type, place and catcher of most exceptions; "": few, or of many kinds
	Descriptors         int          // -1: not known
	DescriptorsLimit    int          // -1: none; 0: not known
	Threads             ActivityThreads
	Host                string // what .NET's host does, beyond its daily work: a clause; "": nothing is known

	// RequestsInFlight are requests that a web server in the process serves at the end. -1: not known.
	RequestsInFlight int
	// RequestsEnded is how many requests have ended in RequestsOver. -1: not known, or the process serves nothing.
	RequestsEnded int
	RequestsOver  time.Duration

	// TasksInFlight are async methods that have been suspended and have not ended, at the end. -1: not known.
	TasksInFlight int
	// TasksEnded is how many of the async methods in flight at the first look ended in TasksOver. Methods that began
	// after the first look do not count. -1: not known.
	TasksEnded int
	TasksOver  time.Duration
	// TasksExact: each of the methods was looked at again. Otherwise a garbage collection has moved objects, and at
	// least TasksEnded methods have ended.
	TasksExact bool
}

// MemoryLimit is the limit of a control group, in bytes: of the group in which the least is left.
type MemoryLimit struct {
	Limit int64
	Used  int64 // by all processes of the group, without file pages that can be given back
}

// ActivityThreads counts threads, by their state in the last look.
type ActivityThreads struct {
	Running int // or ready to run
	Waiting int
	Idle    int // with nothing to do, for example pool workers without work
}

// ActivityCPU is the CPU time that a process used.
type ActivityCPU struct {
	Used   float64 // CPUs, on average
	May    float64 // CPUs that the process may use: the machine's CPUs, or what the control group allows
	ByKind map[CPUKind]float64
	// NativeLibrary is the file name of the library with most of the time in native code; "": none has most.
	NativeLibrary string
	// Path is the stack with the most CPU time, leaf first; nil: there are no samples. Own is the name of the stack's
	// own method: the program's method nearest to the leaf, or else a package's. PathShare is the share of the
	// samples in the own method.
	Path      []snapshot.Frame
	Own       string
	PathShare float64
	// OfNote are known ways of using more CPU time than work needs, such as a struct without Equals as a key, each
	// with its share and the stack of most samples.
	OfNote []Evidence
}

// Share is the share of the CPU time that the process may use.
func (a *ActivityCPU) Share() float64 { return a.Used / a.May }

// CPUKind is what CPU time is used for.
type CPUKind string

// The kinds of CPU time, by the leaf of the stack. Work of the runtime on its own behalf is not the program's code.
const (
	CPUOwn       CPUKind = "own"       // the program's own methods
	CPUPackages  CPUKind = "packages"  // methods of libraries that the program uses
	CPUFramework CPUKind = "framework" // methods of .NET
	CPUNative    CPUKind = "native"    // native libraries, the runtime's own included
	CPUGC        CPUKind = "gc"
	CPUJIT       CPUKind = "jit"
	CPURuntime   CPUKind = "runtime" // other work of the runtime: tiered compilation, finalizers, event pipes
	CPUKernel    CPUKind = "kernel"
)

// CPUKinds are all kinds.
var CPUKinds = [...]CPUKind{CPUOwn, CPUPackages, CPUFramework, CPUNative, CPUGC, CPUJIT, CPURuntime, CPUKernel}

// CPUByKind sums up the weights of a mode's samples of running threads by CPUKind, as shares of the whole weight.
// nil: no samples.
func (r *Recording) CPUByKind(mode Mode) map[CPUKind]float64 {
	out, all := map[CPUKind]float64{}, 0.0
	r.eachRun(mode, func(x *Sample, kind CPUKind) {
		out[kind] += float64(x.Weight)
		all += float64(x.Weight)
	})
	if all == 0 {
		return nil
	}
	for kind := range out {
		out[kind] /= all
	}
	return out
}

// NativeLibrary is the file name of the native library with more than half of the CPU time in native code, by the
// samples of a mode; "": no library has more.
func (r *Recording) NativeLibrary(mode Mode) string {
	of, all := map[string]int64{}, int64(0)
	r.eachRun(mode, func(x *Sample, kind CPUKind) {
		if kind == CPUNative {
			of[r.Function(x.Node).Module] += x.Weight
			all += x.Weight
		}
	})
	for library, weight := range of {
		if weight > all/2 {
			return library
		}
	}
	return ""
}

// eachRun visits a mode's samples of running threads, with the kind of the CPU time.
func (r *Recording) eachRun(mode Mode, visit func(*Sample, CPUKind)) {
	byRole := map[runtimeWork][]runtimeWork{}
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != mode || x.State != Running || x.Weight <= 0 {
			continue
		}
		role := roleWork[r.Threads[x.Thread].Role]
		work, ok := byRole[role]
		if !ok {
			work = r.workOf(role)
			byRole[role] = work
		}
		visit(x, cpuKind(r.Function(x.Node), work[x.Node]))
	}
}

// workOf is the runtime's work on its own behalf at each node, on threads with a role. A parent comes before its
// children.
func (r *Recording) workOf(role runtimeWork) []runtimeWork {
	work := make([]runtimeWork, len(r.Nodes))
	for n := range r.Nodes {
		if work[n] = role; n > 0 {
			work[n] = workIn(r.Function(int32(n)), work[r.Nodes[n].Parent])
		}
	}
	return work
}

// cpuKind is the CPUKind of a leaf.
func cpuKind(leaf *Function, work runtimeWork) CPUKind {
	if leaf != nil && leaf.Kind == snapshot.Kernel {
		return CPUKernel
	}
	switch work {
	case noWork:
	case workGC:
		return CPUGC
	case workJIT:
		return CPUJIT
	default:
		return CPURuntime
	}
	if leaf == nil {
		return CPURuntime
	}
	switch leaf.Origin() {
	case snapshot.OfUser:
		return CPUOwn
	case snapshot.OfPackage:
		return CPUPackages
	case snapshot.OfFramework:
		return CPUFramework
	}
	return CPUNative
}
