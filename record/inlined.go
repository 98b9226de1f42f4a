package record

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/naming"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Inlined methods are proved when everything is recorded, once for each call. Meanwhile the calls are
// noted.

// callPair are the locations of two frames: one has called the other.
type callPair struct{ caller, callee int32 }

// maxCalls bounds the noted calls of a process: about 200 bytes each.
const maxCalls = 1 << 15

// inlinedWithin bounds the time for the calls of all processes.
const inlinedWithin = 2 * time.Second

// call notes the call from a managed frame, with its location, to the frame before. callee is the
// MethodDesc of the frame before; 0: that frame is not managed.
func (f *frameTable) call(fr *walk.Frame, location int32, callee arch.Addr, note *frameNote) {
	n := len(f.stack)
	if n == 0 || !f.p.Options.Inlined || fr.Kind != walk.Managed || fr.Exact {
		return
	}
	if note.known() {
		if note.called == f.stack[n-1]+1 {
			return
		}
		note.called = f.stack[n-1] + 1
	}
	pair := callPair{location, f.stack[n-1]}
	if known, ok := f.calls[pair]; ok {
		if known.Callee != 0 && known.IP != fr.IP() { // code of the same name: it is not clear which code is meant
			f.calls[pair] = naming.Call{}
		}
		return
	}
	if len(f.calls) >= maxCalls {
		return
	}
	above := snapshot.Frame{Kind: snapshot.Native}
	if callee != 0 {
		above = snapshot.Frame{Kind: snapshot.Managed, FunctionID: uint64(callee)}
	}
	c, _ := f.p.Call(fr, 0, &above)
	f.calls[pair] = c
}

// addInlined returns a recording with the methods that were certainly inlined, as far as there is a
// proof: the processes must still be there.
func (r *recorder) addInlined(out *profile.Recording) *profile.Recording {
	if !r.opts.Inlined {
		return out
	}
	hot := samplesOfCalls(out)
	found := map[callPair][]int32{}
	until := live.Monotonic() + inlinedWithin
	for _, rp := range r.all {
		own, left := map[callPair][]int32{}, 0
		if !rp.ended {
			left = rp.frames.findInlined(hot, until, own)
		}
		addProved(found, own, rp.frames.calls)
		if left > 0 {
			r.notes = append(r.notes, fmt.Sprintf("There was no time to find the inlined methods at %s.",
				counted(left, "call", "calls")))
		}
	}
	if len(found) == 0 {
		return out
	}
	return out.Insert(func(caller, callee int32) []int32 { return found[callPair{caller, callee}] })
}

// addProved adds the proofs about the calls of a process. Processes have locations in common: where
// another process has other code, or this process's code is not known, nothing is shown.
func addProved(found, own map[callPair][]int32, calls map[callPair]naming.Call) {
	for pair := range calls {
		frames := own[pair]
		if others, ok := found[pair]; ok && !slices.Equal(frames, others) {
			frames = nil
		}
		found[pair] = frames
	}
}

// samplesOfCalls counts the samples with a call on their stacks.
func samplesOfCalls(r *profile.Recording) map[callPair]int {
	below := make([]int, len(r.Nodes))
	for i := range r.Samples {
		below[r.Samples[i].Node] += int(r.Samples[i].Count)
	}
	out := map[callPair]int{}
	for n := len(r.Nodes) - 1; n > 0; n-- { // a parent comes before its children
		parent := r.Nodes[n].Parent
		below[parent] += below[n]
		if parent > 0 {
			out[callPair{r.Nodes[parent].Location, r.Nodes[n].Location}] += below[n]
		}
	}
	return out
}

// findInlined adds the locations of inlined methods at calls, the calls with the most samples first.
// It returns for how many calls there was no time.
func (f *frameTable) findInlined(hot map[callPair]int, until time.Duration, found map[callPair][]int32) (left int) {
	var pairs []callPair
	for pair, c := range f.calls {
		if c.Callee != 0 && hot[pair] > 0 {
			pairs = append(pairs, pair)
		}
	}
	if len(pairs) == 0 || !f.p.BeginInlined() {
		return 0
	}
	slices.SortFunc(pairs, func(a, b callPair) int {
		return cmp.Or(cmp.Compare(hot[b], hot[a]), cmp.Compare(a.caller, b.caller), cmp.Compare(a.callee, b.callee))
	})
	for i, pair := range pairs {
		if live.Monotonic() > until {
			return len(pairs) - i
		}
		c := f.calls[pair]
		tier := f.b.Tier(pair.caller)
		found[pair] = nil
		for _, in := range f.p.InlinedAt(&c) {
			found[pair] = append(found[pair], f.inlined(&in, tier))
		}
	}
	return 0
}

// inlined returns the location of an inlined method.
func (f *frameTable) inlined(in *naming.InlinedFrame, tier string) int32 {
	n := &in.Frame
	l := profile.Location{
		Function: f.b.Function(profile.Function{
			Kind: n.Kind, Method: n.Method, Display: n.Display, Short: n.Short, Signature: n.Signature,
			Module: n.Module, Owner: n.Owner,
		}),
		Tier: tier, Inlined: true,
	}
	if in.Place.Method > 0 {
		f.places.placeAt(&in.Place, &l)
	}
	return f.b.Location(l)
}
