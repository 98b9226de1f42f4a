// Package cpu has the judge of threads that use a whole CPU in one method. The judge returns nothing if a healthy
// program could look the same.
package cpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thresholds of a loop.
const (
	sameMethod = 0.95 // of the thread's samples, in one own method
	oneLeaf    = 0.90 // of these samples, in the method itself and its most frequent callee
	hardlyRun  = 0.05 // of the time: less is negligible
	// A loop waits for nothing. Still, a thread in a loop may block so often in a second: for looks, and for garbage
	// collections.
	fewBlocks = 40.0
)

// runner is a thread that uses a whole CPU in one method.
type runner struct {
	thread gather.Watched
	site   gather.Site
	share  float64 // of the thread's samples in the method
	leaf   *profile.Function
	native *profile.Function // with most samples, if most samples are in native code or in its stub
	regex  float64           // share of the samples in regular expressions
	crowd  bool              // the thread shares the CPUs with many threads: too little CPU time to be judged alone
}

// evidence is the input of the judge.
type evidence struct{ *gather.Evidence }

// Loops looks for threads that have used a whole CPU in one method during the whole look.
func Loops(of *gather.Evidence) []profile.Verdict {
	e := evidence{of}
	mode, ok := e.RunningMode()
	if !ok || e.Samples.Duration < gather.Enough {
		return nil
	}
	byMethod := map[string][]runner{}
	var starved []gather.Watched
	threads := e.Threads()
	for i := range threads {
		w := &threads[i]
		if w.Last().ManagedThreadID == 0 || !w.AlwaysReady(e.Evidence) ||
			float64(w.Blocked) > fewBlocks*e.Whole().Seconds() {
			continue
		}
		if e.sharesWork(w) {
			continue
		}
		r, samples, ok := e.runner(gather.IDs(threads[i:i+1]), mode)
		if samples < gather.LeastRun {
			starved = append(starved, *w)
		}
		if ok {
			r.thread = *w
			key := e.Samples.Function(r.site.Node).Display
			byMethod[key] = append(byMethod[key], r)
		}
	}
	crowds, left := e.crowds(starved, mode)
	e.tooBusy(left, mode)
	var out []profile.Verdict
	for _, list := range crowds {
		out = append(out, loop(e, list))
	}
	for _, list := range byMethod {
		out = append(out, loop(e, list))
	}
	slices.SortFunc(out, func(a, b profile.Verdict) int {
		return cmp.Or(cmp.Compare(len(b.Evidence[0].Threads), len(a.Evidence[0].Threads)), cmp.Compare(a.Text, b.Text))
	})
	return out[:min(len(out), maxLoops)]
}

// crowds finds threads that share the CPUs and run one method during the whole look, although each thread has too few
// samples to be judged alone. left are the other starved threads.
func (e evidence) crowds(starved []gather.Watched, mode profile.Mode) (crowds [][]runner, left []gather.Watched) {
	byMethod := map[string][]gather.Watched{}
	for _, w := range starved {
		if key := e.staysIn(&w, mode); key != "" {
			byMethod[key] = append(byMethod[key], w)
		} else {
			left = append(left, w)
		}
	}
	for _, threads := range byMethod {
		all, _, ok := e.runner(gather.IDs(threads), mode)
		if !ok || len(threads) < 2 {
			left = append(left, threads...)
			continue
		}
		all.crowd = true
		list := make([]runner, len(threads))
		for i := range threads {
			list[i] = all
			list[i].thread = threads[i]
		}
		crowds = append(crowds, list)
	}
	return crowds, left
}

// staysIn is the own method of a thread, in at least two looks and in each of the thread's few samples; "": several
// methods.
func (e evidence) staysIn(w *gather.Watched, mode profile.Mode) string {
	in, _, looks := w.StaysIn()
	mine := gather.RunsOf(e.Samples, gather.IDs([]gather.Watched{*w}), mode)
	all, n := gather.Weigh(e.Samples, mine)
	list := gather.Sites(e.Samples, mine)
	if looks < 2 || n > 0 && (len(list) == 0 || e.Samples.Function(list[0].Node).Display != in ||
		float64(list[0].Weight) < sameMethod*float64(all)) {
		return ""
	}
	return in
}

// parallel are the assemblies of Parallel.For and similar loops, and of PLINQ.
var parallel = []string{"System.Threading.Tasks.Parallel", "System.Linq.Parallel"}

// sharesWork reports whether a thread works at a parallel loop with other threads: the loop makes progress, item by
// item. An endless loop in the work for one item is alone in the end.
func (e evidence) sharesWork(w *gather.Watched) bool {
	in := func(t *snapshot.Thread) bool {
		return t.State == "running" && slices.ContainsFunc(t.Frames, func(f snapshot.Frame) bool {
			return slices.Contains(parallel, f.Module)
		})
	}
	if !w.All(in) {
		return false
	}
	threads := e.Threads()
	return slices.ContainsFunc(threads, func(o gather.Watched) bool {
		return o.Last().OSThreadID != w.Last().OSThreadID && slices.ContainsFunc(o.Looks, in)
	})
}

// maxLoops bounds the verdicts of one cause.
const maxLoops = 3

// tooBusy notes that the starved threads cannot be judged individually, unless limits.Throttled blames the control
// group. The note says what the threads do together. If all starved threads together have hardly run, other processes
// have used the CPUs, and tooBusy notes nothing: see starved.
func (e evidence) tooBusy(starved []gather.Watched, mode profile.Mode) {
	ran := time.Duration(0)
	for i := range starved {
		ran += starved[i].Ran
	}
	if float64(ran) <= hardlyRun*float64(e.Whole()) || e.Throttled() != nil {
		return
	}
	most := slices.MaxFunc(starved, func(a, b gather.Watched) int { return cmp.Compare(a.Ran, b.Ran) })
	who, together := phrase.ThreadName(gather.Ref(most.Last())), ""
	if n := len(starved) - 1; n > 0 {
		who = fmt.Sprintf("%s, like %s,", who, phrase.Counted(n, "other", "others"))
		together = e.together(gather.IDs(starved), ran, mode)
	}
	e.Missing = append(e.Missing, fmt.Sprintf("%s was ready to run nearly all the time, but had a CPU for %s only: "+
		"too short a time to judge.%s Look longer, with --for.", who, phrase.Seconds(most.Ran), together))
}

// together says what some threads do together, given their total running time.
func (e evidence) together(ids map[int]bool, ran time.Duration, mode profile.Mode) string {
	r, mine := e.Samples, gather.RunsOf(e.Samples, ids, mode)
	list := gather.Sites(r, mine)
	if len(list) == 0 {
		return ""
	}
	all, _ := gather.Weigh(r, mine)
	return fmt.Sprintf(" Together the threads used %s of a CPU, and %s of the samples are in %s.",
		phrase.Percent(gather.AtOnce(int64(ran), e.Whole())), phrase.Percent(float64(list[0].Weight)/float64(all)),
		phrase.Method(list[0].Frame(r)))
}

// runner reports the single method in which threads run, if there is one, and the number of the threads' samples.
func (e evidence) runner(ids map[int]bool, mode profile.Mode) (out runner, n int, ok bool) {
	r, mine := e.Samples, gather.RunsOf(e.Samples, ids, mode)
	all, n := gather.Weigh(r, mine)
	list := gather.Sites(r, mine)
	if len(list) == 0 {
		list = gather.SitesBy(r, mine, gather.MadeNode)
	}
	if n < gather.LeastRun || len(list) == 0 || float64(list[0].Weight) < sameMethod*float64(all) {
		return out, n, false
	}
	out = runner{site: list[0], share: float64(list[0].Weight) / float64(all)}
	leaves, natives, regex, inNative := map[*profile.Function]int64{}, map[*profile.Function]int64{}, int64(0), int64(0)
	for i := range r.Samples {
		if x := &r.Samples[i]; mine(x) {
			if f := managedLeaf(r, x.Node); f != nil {
				leaves[f] += x.Weight
			}
			if f := r.Function(x.Node); f.Kind == snapshot.Native {
				natives[f] += x.Weight
				inNative += x.Weight
			}
			if inRegex(r, x.Node) {
				regex += x.Weight
			}
		}
	}
	out.regex = float64(regex) / float64(all)
	out.leaf = heaviest(leaves)
	stub := out.leaf != nil && strings.HasPrefix(out.leaf.Method, "IL_STUB")
	if inNative > 0 && (stub || inNative >= all/2) {
		out.native = heaviest(natives)
	}
	return out, n, concentrated(leaves, r.Function(out.site.Node), all) || out.regex >= sameMethod
}

// managedLeaf is the managed function nearest to the leaf. A SpinWait stands for the called methods.
func managedLeaf(r *profile.Recording, leaf int32) (first *profile.Function) {
	for n := leaf; n > 0; n = r.Nodes[n].Parent {
		f := r.Function(n)
		switch {
		case f.Kind != snapshot.Managed:
		case strings.HasPrefix(f.Method, "System.Threading.SpinWait."):
			return f
		case f.Origin() == snapshot.OfUser:
			return cmp.Or(first, f)
		default:
			first = cmp.Or(first, f)
		}
	}
	return first
}

func heaviest(leaves map[*profile.Function]int64) (f *profile.Function) {
	for l, w := range leaves {
		if f == nil || w > leaves[f] || w == leaves[f] && l.Display < f.Display {
			f = l
		}
	}
	return f
}

// concentrated reports whether nearly all samples are in a method itself, or in one callee. A loop stays in the
// two methods; progressing work is spread over many functions.
func concentrated(leaves map[*profile.Function]int64, own *profile.Function, all int64) bool {
	itself, other := int64(0), int64(0)
	for f, w := range leaves {
		if f.Method == own.Method && f.Module == own.Module {
			itself += w
		} else {
			other = max(other, w)
		}
	}
	return float64(itself+other) >= oneLeaf*float64(all)
}

// inRegex reports whether a sample is in a regular expression, interpreted, compiled or generated.
func inRegex(r *profile.Recording, leaf int32) bool {
	for n := leaf; n > 0; n = r.Nodes[n].Parent {
		f := r.Function(n)
		if f.Module == "System.Text.RegularExpressions" || phrase.IsGenerated(f.Method) {
			return true
		}
		if f.Kind == snapshot.Managed && f.Origin() == snapshot.OfUser {
			return false
		}
	}
	return false
}

// runsIn names the method of a site.
func runsIn(own *snapshot.Frame) string {
	if own != nil && own.Module == "" {
		return phrase.Method(own) + ", which was made at run time, perhaps with the program's own methods inlined"
	}
	return phrase.Method(own)
}

// nativeName names native code for a sentence.
func nativeName(f *profile.Function) string {
	if f.Method == "" || f.Module == "" {
		return cmp.Or(f.Display, f.Module)
	}
	return f.Method + " of " + f.Module
}

// isWorkOfThread reports whether the method is the purpose of the thread: the thread's first own method, or the work of
// the thread since the beginning.
func (x *runner) isWorkOfThread(e evidence) bool {
	f, t := e.Samples.Function(x.site.Node), x.thread.Last()
	first := gather.OutermostOwn(t.Frames) == f.Module+"!"+f.Method
	return x.regex < sameMethod && (first || e.AlwaysBusy[t.OSThreadID]) &&
		t.Role != "Finalizer" && !strings.HasPrefix(t.Role, "ThreadPool")
}

// loop is the verdict on threads that run one method.
func loop(e evidence, list []runner) profile.Verdict {
	r := e.Samples
	first := &list[0]
	own := first.site.Frame(r)
	var refs []snapshot.ThreadRef
	least, ready := 1.0, 0.0
	ran := time.Duration(0)
	for i := range list {
		ran += list[i].thread.Ran
		refs = append(refs, gather.Ref(list[i].thread.Last()))
		least = min(least, list[i].share)
		ready = max(ready, float64(list[i].thread.Ready)/float64(e.Whole()))
	}
	v := profile.Verdict{
		Cause: profile.CauseCPU, Certainty: profile.Likely,
		Commands: []string{fmt.Sprintf("clrsnap record %d --mode cpu -d 10s", e.Process.PID),
			fmt.Sprintf("clrsnap stack %d --thread %d", e.Process.PID, refs[0].OSThreadID)},
	}
	who := fmt.Sprintf("%s runs all the time", phrase.ThreadName(refs[0]))
	if len(list) > 1 {
		who = fmt.Sprintf("%s run all the time", phrase.ThreadsOf(len(list)))
	}
	if ready > 0.1 && len(list) == 1 {
		who = fmt.Sprintf("%s is ready to run all the time", phrase.ThreadName(refs[0]))
	}
	if first.crowd {
		who = fmt.Sprintf("%s are ready to run all the time and share the CPUs", phrase.ThreadsOf(len(list)))
	}
	most := "Most likely a loop does not end, or work never pauses."
	if !first.crowd && len(list) <= max(e.CPUs, 1) &&
		!slices.ContainsFunc(list, func(x runner) bool { return !x.isWorkOfThread(e) }) {
		v.Certainty = profile.Possible
		most = "This may be a long computation, a search in much data, busy waiting, or a loop that does not end."
	}
	what := most
	if first.regex >= sameMethod {
		what = "All of the time is in a regular expression of the method. Most likely the expression backtracks: " +
			"the time grows fast with the length of some texts."
	} else if f := first.native; f != nil {
		what = fmt.Sprintf("Most samples are in native code below that method, first of all in %s. %s", nativeName(f),
			most)
	} else if f := first.leaf; f != nil && own != nil && f.Display != own.Display {
		what = fmt.Sprintf("Most samples are in %s, called by the method. %s", f.Display, most)
	}
	v.Text = fmt.Sprintf("%s, and %s of the samples over %s are in %s. %s", who, phrase.Percent(least),
		phrase.Seconds(r.Duration),
		runsIn(own), what)
	if !first.crowd {
		ran = first.thread.Ran
	}
	text := fmt.Sprintf("%s of CPU time in %s: %s of a CPU.", phrase.Seconds(ran), phrase.Seconds(e.Whole()),
		phrase.Percent(gather.AtOnce(int64(ran), e.Whole())))
	if first.crowd {
		text = "Together: " + text
	} else if ready > 0.1 {
		text += fmt.Sprintf(" The thread was ready to run and had no CPU for %s of the time.", phrase.Percent(ready))
	}
	v.Evidence = []profile.Evidence{
		{Text: strings.TrimSpace(text) + " The stack of most samples:", Frames: gather.Frames(r, first.site.Leaf),
			Threads: refs},
	}
	return v
}
