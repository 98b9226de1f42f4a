package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
)

// loaders are the methods that load or generate assemblies, by the beginnings of their names.
var loaders = []string{
	"System.Runtime.Loader.AssemblyLoadContext.Load", "System.Reflection.Assembly.Load",
	"System.Reflection.RuntimeAssembly.InternalLoad", "System.Reflection.Emit.AssemblyBuilder.Define",
	"System.Reflection.Emit.RuntimeAssemblyBuilder.", "System.Xml.Serialization.XmlSerializer..ctor",
	"System.Xml.Serialization.TempAssembly",
}

// judgeAssemblies looks for assemblies that become more all the time, and stay.
func judgeAssemblies(e *evidence) []profile.Verdict {
	list := e.keptTypes()
	i := slices.IndexFunc(list, func(l linkedList) bool { return l.Row.Type == gather.AssemblyClass })
	if i < 0 {
		return nil
	}
	l := &list[i]
	l.Pile = l.InAny()
	if !l.grows(e.Age) {
		return nil
	}
	v := profile.Verdict{
		Cause: profile.CauseHeapGrowth, Certainty: l.Certainty(e.Age, l.Path),
		Text: fmt.Sprintf("Assemblies pile up: %s are loaded and stay, %s. %s", phrase.Number(int64(l.Pile.Count)),
			l.More(), l.Whole(e.Age)),
		Evidence: e.grownOld(),
		Commands: []string{fmt.Sprintf("clrsnap heap %d --every 30s", e.Process.PID),
			fmt.Sprintf("clrsnap heap %d --roots '^%s$'", e.Process.PID, regexp.QuoteMeta(gather.AssemblyClass))},
	}
	if e.Samples == nil {
		return []profile.Verdict{v}
	}
	sites := gather.Sites(e.Samples, func(x *profile.Sample) bool {
		return (x.Mode == profile.CPU || x.Mode == profile.Wall) && loads(e.Samples, x.Node)
	})
	if len(sites) > 0 {
		v.Text += fmt.Sprintf(" Assemblies are loaded, or generated, in %s.", phrase.Method(sites[0].Frame(e.Samples)))
		v.Evidence = append([]profile.Evidence{{
			Text: "An assembly is loaded, or generated, here:", Frames: gather.Frames(e.Samples, sites[0].Leaf),
		}}, v.Evidence...)
	}
	return []profile.Verdict{v}
}

// loads reports whether a stack loads or generates an assembly.
func loads(r *profile.Recording, leaf int32) bool {
	for n := leaf; n > 0; n = r.Nodes[n].Parent {
		name := r.Function(n).Display
		if slices.ContainsFunc(loaders, func(c string) bool { return strings.HasPrefix(name, c) }) {
			return true
		}
	}
	return false
}
