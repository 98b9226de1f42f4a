package lines

import (
	"slices"
	"sort"

	"clrsnap/internal/source"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// unoptimized is the tier of code with separate instructions for each statement.
const unoptimized = "minopts"

// point returns the source place of a location.
func (a *adder) point(pdb *source.Assembly, i int32) (source.Point, error) {
	l := &a.r.Locations[i]
	il, next, row := uint32(l.IL), uint32(max(l.Next, l.IL+1)), a.r.Methods[l.Method].Row
	callees := a.callees[i]
	if len(callees) == 0 {
		return pdb.Point(row, il, next)
	}
	call := source.Call{IL: il, Next: next, Optimized: l.Tier != unoptimized, Sites: a.sites(l.Method)}
	var out source.Point
	for n, callee := range callees {
		call.Callee = callee
		at, err := pdb.PointOfCall(row, &call)
		if err != nil {
			return at, err
		}
		switch {
		case n == 0:
			out = at
		case at.Line != out.Line || at.Document != out.Document: // the location does not tell which callee
			out, err = pdb.Point(row, il, next)
			out.Approximate = true
			return out, err
		default:
			out.Approximate = out.Approximate || at.Approximate
		}
	}
	return out, nil
}

// sites returns the call sites of a method.
func (a *adder) sites(method int32) []source.Site {
	all := a.r.Sites
	from := sort.Search(len(all), func(i int) bool { return all[i].Method >= method })
	var out []source.Site
	for ; from < len(all) && all[from].Method == method; from++ {
		out = append(out, source.Site{IL: all[from].IL, Method: all[from].Callee})
	}
	return out
}

// maxCallees bounds the known callees of one location.
const maxCallees = 8

// calleesOf returns the names of the managed methods that locations call, by the location.
func calleesOf(r *profile.Recording) map[int32][]string {
	out := map[int32][]string{}
	frames := make([]int32, len(r.Nodes)) // by node: the node itself, or the nearest caller with a frame
	for i := 1; i < len(r.Nodes); i++ {   // a parent comes before its children
		n := &r.Nodes[i]
		below := frames[n.Parent]
		l := &r.Locations[n.Location]
		callee := &r.Functions[l.Function]
		if callee.Kind == snapshot.Async || l.Inlined { // a method's awaiter has not called the method
			frames[i] = below
			continue
		}
		frames[i] = int32(i)
		if below == 0 || callee.Kind != snapshot.Managed || callee.Method == "" {
			continue
		}
		caller := r.Nodes[below].Location
		if r.Locations[caller].Method <= 0 {
			continue
		}
		name := source.LastName(callee.Method)
		if known := out[caller]; len(known) < maxCallees && !slices.Contains(known, name) {
			out[caller] = append(known, name)
		}
	}
	return out
}
