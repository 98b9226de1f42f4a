package singlestep

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Add adds another report.
func (r *Report) Add(o *Report) {
	for v := range numVerdicts {
		r.Verdicts[v] += o.Verdicts[v]
		r.Leaving[v] += o.Leaving[v]
		r.Folded[v] += o.Folded[v]
	}
	for _, x := range [][2]*int{
		{&r.Held, &o.Held}, {&r.Moved, &o.Moved}, {&r.Unfolded, &o.Unfolded}, {&r.Ended, &o.Ended},
		{&r.Threads, &o.Threads}, {&r.Unbegun, &o.Unbegun},
		{&r.Blocked, &o.Blocked}, {&r.Repeats, &o.Repeats}, {&r.Signals, &o.Signals},
	} {
		*x[0] += *x[1]
	}
	for key, k := range o.Misses {
		if mine := r.Misses[key]; mine != nil {
			mine.Count += k.Count
		} else {
			r.Misses[key] = k
		}
	}
	addAll(r.Jumps, o.Jumps)
	r.counts.add(&o.counts)
	r.coverage.add(&o.coverage)
}

func (c *counts) add(o *counts) {
	for i, p := range c.fields() {
		*p.n += *o.fields()[i].n
	}
}

type field struct {
	name string
	n    *int
}

func (c *counts) fields() []field {
	return []field{
		{"calls executed", &c.calls},
		{"returns to the caller", &c.rets},
		{"returns that are jumps", &c.jumps},
		{"returns that were hijacked", &c.hijacks},
		{"frames that the stack pointer passed", &c.dropped},
		{"leaves that gave up their frame before they left", &c.leavings},
		{"methods replaced on the stack (OSR)", &c.replaced},
		{"targets of longjmp that a walk foretold", &c.foretold},
		{"signal handlers started", &c.signals},
		{"returns from a signal handler", &c.sigreturns},
		{"switches from the signal stack to the ordinary one", &c.switches},
		{"switches back", &c.backs},
		{"frames that were there before", &c.baseFrames},
		{"of them confirmed by a return", &c.confirmed},
		{"of them passed by the stack pointer", &c.baseDropped},
	}
}

func (c *coverage) add(o *coverage) {
	addAll(c.tiers, o.tiers)
	addAll(c.steps, o.steps)
	addAll(c.distinct, o.distinct)
	addAll(c.frames, o.frames)
	addAll(c.states, o.states)
	addAll(c.shapes, o.shapes)
	maps.Copy(c.natives, o.natives)
}

func addAll(to, from map[string]int) {
	for k, n := range from {
		to[k] += n
	}
}

// String is the report as text.
func (r *Report) String() string {
	var b strings.Builder
	n := r.Steps()
	fmt.Fprintf(&b, "walks after an instruction: %d in %d threads\n", n, r.Threads)
	for v, name := range verdictNames {
		fmt.Fprintf(&b, "  %-60s %10d  %.5f %%\n", name, r.Verdicts[v], 100*float64(r.Verdicts[v])/float64(max(n, 1)))
	}
	fmt.Fprintf(&b, "of these while the leaf was leaving: %v, not judged: %d\n", r.Leaving, r.Held)
	fmt.Fprintf(&b, "folded walks and DoStackSnapshot: %v, moments at which the truth is not known: %d\n", r.Folded,
		r.Unfolded)
	fmt.Fprintf(&b, "threads ended while stepped %d, left because they blocked %d, not begun %d; signals given back "+
		"%d; turns of repeated instructions, not counted: %d\n", r.Ended, r.Blocked, r.Unbegun, r.Signals, r.Repeats)
	fmt.Fprintf(&b, "references in saved registers that a collection moved: %d\n", r.Moved)
	b.WriteString("\nthe shadow stack's rules\n")
	for _, f := range r.counts.fields() {
		fmt.Fprintf(&b, "  %-60s %10d\n", f.name, *f.n)
	}
	r.coverage.text(&b)
	table(&b, "returns that are jumps, by code", r.Jumps)
	b.WriteString("\nmisses\n")
	kinds := slices.SortedFunc(maps.Keys(r.Misses),
		func(x, y string) int { return cmp.Compare(r.Misses[y].Count, r.Misses[x].Count) })
	for _, k := range kinds {
		fmt.Fprintf(&b, "%8d × %s\n%s\n", r.Misses[k].Count, k, r.Misses[k].Example)
	}
	return b.String()
}

func (c *coverage) text(b *strings.Builder) {
	methods := 0
	for _, n := range c.tiers {
		methods += n
	}
	fmt.Fprintf(b, "\ncode executed: %d kinds, %d methods, %d native functions with a name\n", len(c.steps), methods,
		len(c.natives))
	fmt.Fprintf(b, "  %-60s %10s %10s\n", "", "steps", "addresses")
	for _, k := range byCount(c.steps) {
		fmt.Fprintf(b, "  %-60s %10d %10d\n", k, c.steps[k], c.distinct[k])
	}
	table(b, "methods by tier", c.tiers)
	table(b, "instructions of prologs and epilogs, and returns", c.shapes)
	table(b, "newest Frame of the chain, in steps", c.frames)
	table(b, "state of the thread, in steps", c.states)
}

func table(b *strings.Builder, title string, m map[string]int) {
	if len(m) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, k := range byCount(m) {
		fmt.Fprintf(b, "  %-60s %10d\n", k, m[k])
	}
}

func byCount(m map[string]int) []string {
	return slices.SortedFunc(maps.Keys(m), func(x, y string) int {
		return cmp.Or(cmp.Compare(m[y], m[x]), cmp.Compare(x, y))
	})
}
