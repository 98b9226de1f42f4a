package gather

import (
	"context"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"time"

	"clrsnap"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/phrase"
	"clrsnap/internal/procfs"
	"clrsnap/snapshot"
)

const (
	// walkWithin is how long a walk of the heap may take. 1 GB takes up to a second.
	walkWithin = 1500 * time.Millisecond
	// keepWithin is how long the search for paths to growing collections may take, and mostKeepers the number of
	// searched collections.
	keepWithin  = 3 * time.Second
	mostKeepers = 3
)

// census counts the objects of the heap, if the heap is quick to read.
func (g *Gatherer) census(ctx context.Context) {
	if g.heapMissing {
		return
	}
	g.progress("the heap")
	bounded, cancel := context.WithTimeout(ctx, walkWithin)
	defer cancel()
	h, err := g.p.Heap(bounded, clrsnap.HeapOptions{})
	switch {
	case err != nil:
		g.Miss("The heap was not looked at: %v.", err)
	case h.Partial && ctx.Err() == nil:
		g.Miss("The heap was not looked at: a walk did not end within %v. clrsnap heap %d --every 30s shows what "+
			"grows.", walkWithin, g.Process.PID)
	default:
		l := HeapLook{At: time.Since(g.start), Heap: h}
		if l.Piles, err = heapwalk.Piles(bounded, g.s); err != nil && ctx.Err() == nil {
			g.missOnce("Handlers of events, elements of collections and timers were not counted: %v.", err)
		}
		g.Heaps = append(g.Heaps, l)
		return
	}
	g.heapMissing = true
}

// keepers finds the paths to growing collections.
func (g *Gatherer) keepers(ctx context.Context) {
	g.Age = g.s.Age()
	growing := g.Growing()
	if len(growing) == 0 {
		return
	}
	g.progress("what keeps objects")
	bounded, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	for i := range growing[:min(len(growing), mostKeepers)] {
		p := &growing[i]
		path, count, err := heapwalk.PilePath(bounded, g.s, p.Pile)
		if err != nil {
			if ctx.Err() == nil {
				g.Miss("What keeps the objects that pile up was not found out: %v.", err)
			}
			return
		}
		if path != nil && count >= p.Count/2 {
			if g.Kept = append(g.Kept, KeptPile{p.Pile, path}); phrase.OwnField(path) != "" {
				return
			}
		}
	}
}

// Used is the size of the heap in bytes, free space between objects included.
func (h *HeapLook) Used() (n int64) {
	for i := range h.Parts {
		n += int64(h.Parts[i].Size)
	}
	return n
}

// OldBytes is the size of the old generations and large objects.
func (h *HeapLook) OldBytes() (n int64) {
	for i := range h.Types {
		n += int64(Old(&h.Types[i]).Bytes)
	}
	return n
}

// Old is the amount of a type that has survived for a while, or is large.
func Old(t *snapshot.HeapType) (a snapshot.HeapAmount) {
	for _, g := range []snapshot.Generation{snapshot.Gen1, snapshot.Gen2, snapshot.LargeObjects,
		snapshot.PinnedObjects} {
		a.Add(t.Generations[g])
	}
	return a
}

// FullHeap is the share of the heap's limit from which on the heap is nearly full.
const FullHeap = 0.85

// filling finds what keeps the most objects of the type that takes the most of a heap that is nearly full.
func (g *Gatherer) filling(ctx context.Context) {
	n := len(g.Heaps)
	if n == 0 || g.HeapLimit.Bytes <= 0 || len(g.Heaps[n-1].Types) == 0 ||
		float64(g.Heaps[n-1].Used()) < FullHeap*float64(g.HeapLimit.Bytes) {
		return
	}
	t := &g.Heaps[n-1].Types[0]
	g.progress("what keeps objects")
	bounded, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	h, err := g.p.Heap(bounded, clrsnap.HeapOptions{Roots: regexp.MustCompile("^" + regexp.QuoteMeta(t.Name) + "$")})
	if err != nil || h.Partial {
		return // the verdict names the types all the same
	}
	for i := range h.Paths {
		if p := &h.Paths[i]; g.Filling == nil || p.Objects.Bytes > g.Filling.Objects.Bytes {
			g.Filling = p
		}
	}
}

// Settings of the limit (docs/core/runtime-config/garbage-collector, gcconfig.h). The values are hexadecimal.
const (
	limitSetting   = "GCHeapHardLimit"
	percentSetting = "GCHeapHardLimitPercent"
	defaultPercent = 75 // of a control group's limit (gcinterface.h; gc.cpp, compute_hard_limit)
	leastLimit     = 20 << 20
)

// limit finds the heap's limit: the value from the environment, or else most of the control group's limit. A
// group's limit above the machine's memory has no effect.
func (g *Gatherer) limit() HeapLimit {
	group := int64(0)
	if n := len(g.Moments); n > 0 {
		for _, m := range g.Moments[n-1].Groups.Memory {
			if m.Max > 0 && (group == 0 || m.Max < group) {
				group = m.Max
			}
		}
	}
	if machine, err := procfs.MachineMemory(); err != nil || group > machine {
		group = 0
	}
	environ, err := g.dir.Environ()
	if err != nil {
		environ = func(func(string) bool) {}
	}
	return LimitOf(group, environ)
}

// LimitOf is the limit of the heap in a control group with a limit in bytes, 0 if there is none.
func LimitOf(group int64, environ iter.Seq[string]) HeapLimit {
	set := map[string]int64{}
	for v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if n, err := strconv.ParseInt(strings.TrimPrefix(value, "0x"), 16, 63); err == nil && n > 0 {
			set[name] = n
		}
	}
	for _, prefix := range []string{"DOTNET_", "COMPlus_"} { // the older prefix counts if the newer is missing
		if n := set[prefix+limitSetting]; n > 0 {
			return HeapLimit{Bytes: n, Source: prefix + limitSetting}
		}
	}
	if group == 0 {
		return HeapLimit{}
	}
	for _, prefix := range []string{"DOTNET_", "COMPlus_"} {
		if n := set[prefix+percentSetting]; n > 0 && n <= 100 {
			return HeapLimit{max(group/100*n, leastLimit), prefix + percentSetting, true}
		}
	}
	return HeapLimit{max(group/100*defaultPercent, leastLimit), "75 % of its control group's limit", true}
}
