package gather

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// HasMode reports whether a mode was recorded.
func HasMode(r *profile.Recording, m profile.Mode) bool {
	if r == nil {
		return false
	}
	_, ok := r.Mode(m)
	return ok
}

// OwnNode returns the node nearest to the leaf that is the program's own code, or else a package's; 0: none.
func OwnNode(r *profile.Recording, leaf int32) int32 {
	other := int32(0)
	for n := leaf; n > 0; n = r.Nodes[n].Parent {
		switch f := r.Function(n); f.Origin() {
		case snapshot.OfUser:
			if !phrase.IsGenerated(f.Method) {
				return n
			}
		case snapshot.OfPackage:
			if other == 0 {
				other = n
			}
		}
	}
	return other
}

// Frames are the frames of a sample.
func Frames(r *profile.Recording, leaf int32) []snapshot.Frame {
	var out []snapshot.Frame
	for l := range r.Stack(leaf) {
		f := &r.Functions[l.Function]
		frame := snapshot.Frame{
			Kind: f.Kind, Method: f.Method, Display: f.Display, Short: f.Short, Signature: f.Signature,
			Module: f.Module, Owner: f.Owner, Offset: l.Offset, Tier: l.Tier,
		}
		if l.Line > 0 && int(l.Line) < len(r.Lines) {
			x := &r.Lines[l.Line]
			frame.Line = &snapshot.SourceLine{
				File: r.Files[x.File].Title(), URL: r.Files[x.File].URL, Line: int(x.Line), Approximate: x.Approximate,
			}
		}
		out = append(out, frame)
	}
	return out
}

// Site is an own method, with the amount of samples there.
type Site struct {
	Node   int32 // of the own method, in one of the samples
	Leaf   int32 // the leaf of the heaviest sample
	Weight int64
	Events int64
	most   int64 // the weight of the heaviest sample
}

// Sites sums up samples by their own method, the heaviest first. Samples without an own method are left out.
func Sites(r *profile.Recording, wanted func(*profile.Sample) bool) []Site {
	return SitesBy(r, wanted, OwnNode)
}

// MadeNode returns the node farthest from the leaf of a method made at run time, for example the delegate of a
// minimal API. The program's own code can be inlined there. 0: none.
func MadeNode(r *profile.Recording, leaf int32) (node int32) {
	for n := leaf; n > 0; n = r.Nodes[n].Parent {
		if f := r.Function(n); f.Kind == snapshot.Managed && f.Module == "" {
			node = n
		}
	}
	return node
}

// SitesBy sums up samples by the node that of finds.
func SitesBy(r *profile.Recording, wanted func(*profile.Sample) bool, of func(*profile.Recording, int32) int32) []Site {
	by := map[string]*Site{}
	for i := range r.Samples {
		x := &r.Samples[i]
		if !wanted(x) {
			continue
		}
		n := of(r, x.Node)
		if n == 0 {
			continue
		}
		f := r.Function(n)
		key := f.Module + "!" + cmp.Or(f.Display, f.Method)
		s := by[key]
		if s == nil {
			s = &Site{Node: n}
			by[key] = s
		}
		s.Weight, s.Events = s.Weight+x.Weight, s.Events+x.Events
		if x.Weight > s.most {
			s.most, s.Leaf, s.Node = x.Weight, x.Node, n
		}
	}
	var out []Site
	for _, s := range by {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Site) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// Frame is the own method of a site, as a frame.
func (s *Site) Frame(r *profile.Recording) *snapshot.Frame {
	f := Frames(r, s.Node)
	if len(f) == 0 {
		return nil
	}
	return &f[0]
}

// lockWaits are the beginnings of the methods of the framework that wait for a lock.
var lockWaits = []string{
	"System.Threading.Monitor.Enter", "System.Threading.Monitor.ReliableEnter", "System.Threading.Monitor.TryEnter",
	"System.Threading.Monitor.Try", "System.Threading.Lock.", "System.Threading.ReaderWriterLockSlim.",
}

// WaitsForLock reports whether a sample's thread waits for a lock.
func WaitsForLock(r *profile.Recording, x *profile.Sample) bool {
	return x.Mode == profile.Wall && x.State == profile.Waiting && InLock(r, x.Node)
}

// InLock reports whether a stack has a method that enters a lock.
func InLock(r *profile.Recording, leaf int32) bool {
	for n := leaf; n > 0; n = r.Nodes[n].Parent {
		f := r.Function(n)
		if f.Kind != snapshot.Managed {
			continue
		}
		if f.Module != "System.Private.CoreLib" {
			return false
		}
		if slices.ContainsFunc(lockWaits, func(p string) bool { return strings.HasPrefix(f.Method, p) }) {
			return true
		}
	}
	return false
}

// AtOnce is a sum of times of threads, as the average number of threads.
func AtOnce(weight int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(weight) / float64(d)
}

// RunsOf selects the samples in which some threads ran.
func RunsOf(r *profile.Recording, ids map[int]bool, mode profile.Mode) func(*profile.Sample) bool {
	return func(x *profile.Sample) bool {
		return x.Mode == mode && x.State == profile.Running && ids[r.Threads[x.Thread].OSThreadID]
	}
}

// Weigh sums up the weight and the number of samples.
func Weigh(r *profile.Recording, wanted func(*profile.Sample) bool) (weight int64, n int) {
	for i := range r.Samples {
		if x := &r.Samples[i]; wanted(x) {
			weight, n = weight+x.Weight, n+int(x.Count)
		}
	}
	return weight, n
}

// RunningMode is the mode whose samples tell where threads run; false: none.
func (e *Evidence) RunningMode() (profile.Mode, bool) {
	if e.Samples == nil || len(e.Looks) < 2 {
		return 0, false
	}
	if HasMode(e.Samples, profile.CPU) {
		return profile.CPU, true
	}
	return profile.Wall, HasMode(e.Samples, profile.Wall)
}

// throwing are the beginnings of the methods, and native functions, that throw and catch exceptions.
var throwing = []string{
	"System.Runtime.EH.", "IL_Throw", "IL_Rethrow", "RhpThrow", "RhThrowEx", "DispatchManagedException", "__cxa_throw",
	"_Unwind_RaiseException",
}

// ThrowingShare is the share of the CPU time below the functions of throwing.
func ThrowingShare(r *profile.Recording) float64 {
	if !HasMode(r, profile.CPU) {
		return 0
	}
	sum, _ := Weigh(r, func(x *profile.Sample) bool { return x.Mode == profile.CPU && Throws(r, x.Node) })
	return float64(sum) / float64(max(r.Weight(profile.CPU), 1))
}

// Throws reports whether a sample is below the functions of throwing.
func Throws(r *profile.Recording, leaf int32) bool {
	for n := leaf; n > 0; n = r.Nodes[n].Parent {
		if IsThrowing(r.Function(n).Method) {
			return true
		}
	}
	return false
}

// IsThrowing reports whether a method is a part of throwing or catching an exception.
func IsThrowing(method string) bool {
	return slices.ContainsFunc(throwing, func(begin string) bool { return strings.HasPrefix(method, begin) })
}

// WithoutEvents leaves out the frames of events.
func WithoutEvents(stack []snapshot.Frame) []snapshot.Frame {
	return slices.DeleteFunc(stack, func(f snapshot.Frame) bool { return f.Kind == snapshot.Event })
}

// LeastRun is the number of samples that tell what threads do.
const LeastRun = 30
