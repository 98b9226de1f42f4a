package activity

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thresholds of a method of .NET, of a package or of native code that takes the time of a busy process.
const (
	muchUsed   = 0.75 // of the CPU time that the process may use: used, or wanted by threads without a CPU
	mostCalled = 0.50 // of the used CPU time
	sameWay    = 0.65 // of the samples in the program's method: samples on the way to the method
)

// calledMost tells which method, of those that the program's method with the most CPU time calls, takes most of the CPU
// time of the process.
func calledMost(
	r *profile.Recording, runs func(*profile.Sample) bool, s *gather.Site, all int64,
) []profile.Evidence {
	ways := waysDown(r, runs, s)
	name, library, weight := "", "", s.Weight
	for depth := 0; ; depth++ {
		by := map[string]int64{}
		most := ""
		for _, w := range ways {
			if depth < len(w.nodes) {
				key := functionKey(r.Function(w.nodes[depth]))
				if by[key] += w.weight; by[key] > by[most] {
					most = key
				}
			}
		}
		if float64(by[most]) < sameWay*float64(s.Weight) {
			break
		}
		kept := ways[:0]
		for _, w := range ways {
			if depth < len(w.nodes) && functionKey(r.Function(w.nodes[depth])) == most {
				kept = append(kept, w)
			}
		}
		ways = kept
		f := r.Function(ways[0].nodes[depth])
		switch {
		case f.Kind == snapshot.Managed && !strings.HasPrefix(f.Method, "Interop"):
			name, weight = f.Display, by[most]
		case f.Kind == snapshot.Native && library == "":
			if library = phrase.Library(f.Module); name == "" {
				name, weight = f.Method, by[most]
			}
		}
	}
	share := float64(weight) / float64(all)
	if name == "" || share < mostCalled {
		return nil
	}
	if library != "" {
		library = " (native code of " + library + ")"
	}
	return []profile.Evidence{{
		Text: fmt.Sprintf("%s of the CPU time is in %s%s, called by %s.", phrase.Percent(share), name, library,
			phrase.Method(s.Frame(r))),
		Frames: gather.Frames(r, s.Leaf),
	}}
}

// wayDown is the calls below the program's method in some samples, the outermost first.
type wayDown struct {
	nodes  []int32
	weight int64
}

func waysDown(r *profile.Recording, runs func(*profile.Sample) bool, s *gather.Site) (out []wayDown) {
	for i := range r.Samples {
		x := &r.Samples[i]
		if !runs(x) {
			continue
		}
		own := gather.OwnNode(r, x.Node)
		if own == 0 || functionKey(r.Function(own)) != functionKey(r.Function(s.Node)) {
			continue
		}
		w := wayDown{weight: x.Weight}
		for n := x.Node; n != own; n = r.Nodes[n].Parent {
			w.nodes = append(w.nodes, n)
		}
		slices.Reverse(w.nodes)
		out = append(out, w)
	}
	return out
}

// firstCalled is the method of .NET or of a package that the program's method calls in most of some samples; nil: none.
func firstCalled(r *profile.Recording, ways []wayDown) *profile.Function {
	by, all := map[*profile.Function]int64{}, int64(0)
	for _, w := range ways {
		if all += w.weight; len(w.nodes) > 0 {
			by[r.Function(w.nodes[0])] += w.weight
		}
	}
	for f, weight := range by {
		if weight > all/2 && f.Kind == snapshot.Managed {
			return f
		}
	}
	return nil
}

func functionKey(f *profile.Function) string { return f.Module + "!" + f.Method }
