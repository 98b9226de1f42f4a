package record

import (
	"context"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/lines"
	"clrsnap/internal/module"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/source"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Lines are found when everything is recorded. While a process is recorded, a frame's place in IL is
// noted when its instruction is met for the first time, because neither the code nor the process need
// be there later; and the PDB of its assembly is opened, but not read. No thread is stopped for any of
// this.

// assemblies are the assemblies of a recording, with the finders of their PDBs.
type assemblies struct {
	b     *profile.Builder
	known map[assemblyKey]int32
	later []*source.Later  // by index in Recording.Assemblies
	libs  []*module.Module // by index in Recording.Libraries
	index map[*module.Module]int32
	names map[string]string
}

// name returns a name, and the same string for equal names.
func (a *assemblies) name(s string) string {
	if known, ok := a.names[s]; ok {
		return known
	}
	a.names[s] = s
	return s
}

type assemblyKey struct {
	id        [20]byte
	pdb, path string
}

func newAssemblies(b *profile.Builder) *assemblies {
	return &assemblies{b: b, known: map[assemblyKey]int32{}, names: map[string]string{},
		index: map[*module.Module]int32{}}
}

// add returns the index of an assembly; 0: no PDB could be found, or there is no room. located: the
// assembly's file is known.
func (a *assemblies) add(f *source.Finder, m *source.Module) (i int32, located bool) {
	l, located, err := f.Later(m)
	if err != nil {
		return 0, true
	}
	key := assemblyKey{l.ID, l.PDB, l.Path}
	if i, ok := a.known[key]; ok && located {
		l.Close()
		return i, true
	}
	i = a.b.Assembly(assemblyOf(m.Assembly, l))
	if i == 0 {
		l.Close()
		return 0, true
	}
	a.known[key] = i
	for len(a.later) <= int(i) {
		a.later = append(a.later, nil)
	}
	a.later[i] = l
	return i, located
}

func assemblyOf(name string, l *source.Later) profile.Assembly {
	out := profile.Assembly{Name: name, Path: l.Path, PDB: l.PDB, ID: l.ID}
	for _, c := range l.Checksums {
		out.Checksums = append(out.Checksums, profile.Checksum(c))
	}
	return out
}

// library returns the index of a native module; 0: there is no room.
func (a *assemblies) library(m *module.Module) int32 {
	i, ok := a.index[m]
	if !ok {
		i = a.b.Library(profile.Library{Name: m.Name, Path: m.Path, BuildID: m.BuildID()})
		a.index[m] = i
		for len(a.libs) <= int(i) {
			a.libs = append(a.libs, nil)
		}
		a.libs[i] = m
	}
	return i
}

func (a *assemblies) close() {
	for _, l := range a.later {
		if l != nil {
			l.Close()
		}
	}
}

// placer notes the places in IL of frames of one process.
type placer struct {
	p       *session.Process
	all     *assemblies
	finder  *source.Finder // nil: no lines are wanted
	lasting map[arch.Addr]int32
	passing map[arch.Addr]int32    // assemblies that can be unloaded, at this moment
	ids     map[arch.Addr][20]byte // of the PDBs of those assemblies, at this moment
	lost    []lostAssembly
}

// lostAssembly is an assembly without a known file, because the assembly has just been loaded, or has
// no file.
type lostAssembly struct {
	index  int32
	module source.Module
	until  time.Duration // when to stop looking
}

// lookFor is how long to look for the file of an assembly: the list of mappings is read every 100 ms
// at most.
const lookFor = time.Second

func newPlacer(p *session.Process, all *assemblies) placer {
	return placer{
		p: p, all: all, finder: p.LinesLater(),
		lasting: map[arch.Addr]int32{}, passing: map[arch.Addr]int32{}, ids: map[arch.Addr][20]byte{},
	}
}

// begin starts a new moment.
func (p *placer) begin() {
	clear(p.passing)
	clear(p.ids)
}

// place adds the place of a named frame to its location.
func (p *placer) place(fr *walk.Frame, n *naming.NamedFrame, l *profile.Location) {
	if at, ok := p.p.Place(fr, n); ok {
		p.placeAt(&at, l)
		if l.Method > 0 && !fr.Exact {
			p.sites(l.Method, n)
		}
	}
}

// placeAt adds a place to a location.
func (p *placer) placeAt(at *naming.Place, l *profile.Location) {
	known := p.lasting
	if at.Module.Passing {
		known = p.passing
	}
	assembly, ok := known[at.Module.Image]
	if !ok {
		var located bool
		if assembly, located = p.all.add(p.finder, &at.Module); !located && !at.Module.Passing {
			p.lost = append(p.lost, lostAssembly{assembly, at.Module, live.Monotonic() + lookFor})
		}
		known[at.Module.Image] = assembly
	}
	if assembly > 0 {
		l.Method = p.all.b.Method(profile.Method{Assembly: assembly, Row: at.Method})
		l.IL, l.Next, l.Nearest = at.IL, at.Next, at.Nearest
	}
}

// native adds the place of a native frame to its location.
func (p *placer) native(fr *walk.Frame, l *profile.Location) {
	m, at := p.p.NativePlace(fr)
	if m == nil {
		return
	}
	if l.Library = p.all.library(m); l.Library > 0 {
		l.Address = at
	}
}

// sites adds the call sites of a frame's method, unless the method has them.
func (p *placer) sites(method int32, n *naming.NamedFrame) {
	if p.all.b.HasSites(method) {
		return
	}
	sites := p.p.Sites(n)
	out := make([]profile.CallSite, len(sites))
	for i, s := range sites {
		out[i] = profile.CallSite{Method: method, IL: s.IL, Callee: p.all.name(s.Method)}
	}
	p.all.b.Sites(out)
}

// look looks for the files of assemblies that have just been loaded.
func (p *placer) look(now time.Duration) {
	left := p.lost[:0]
	for _, x := range p.lost {
		l := p.all.later[x.index]
		switch {
		case p.finder.Locate(l, &x.module):
			p.all.b.SetAssembly(x.index, assemblyOf(x.module.Assembly, l))
		case now < x.until:
			left = append(left, x)
		}
	}
	p.lost = left
}

// id identifies the PDB of an assembly with code that can be unloaded, by a named frame in the code.
// The id tells two builds of an assembly apart, whose methods have the same names.
func (p *placer) id(fr *walk.Frame, n *naming.NamedFrame) (id [20]byte) {
	m, ok := n.Assembly(fr)
	if p.finder == nil || !ok {
		return id
	}
	id, ok = p.ids[m.Image]
	if !ok {
		of, _ := p.finder.Identity(&m) // zero: it has none
		id = of.ID
		p.ids[m.Image] = id
	}
	return id
}

// fetchAfter is how long to fetch symbols for an interrupted recording.
const fetchAfter = 20 * time.Second

// addLines finds the lines of a recording, as far as the symbols are there or can be fetched. When ctx
// ends, addLines goes on without the symbols still missing then.
func (r *recorder) addLines(ctx context.Context, out *profile.Recording) {
	if !r.opts.Lines {
		return
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), fetchAfter)
		defer cancel()
	}
	files := lines.NewFiles(nil)
	defer files.Close()
	missing := lines.Add(ctx, out, lines.From{
		Assembly: func(i int32) (*source.Assembly, error) { return r.assemblies.later[i].Assembly() },
		Library:  func(i int32) (*module.File, error) { return r.assemblies.libs[i].File(), nil },
		Remote:   r.opts.Source, Files: files,
	}, lines.Options{
		Roots: r.opts.Roots, Text: r.o.SourceText, Local: r.o.local,
	})
	if r.o.ExplainLines {
		out.Notes = append(out.Notes, withoutLines(out, missing)...)
	}
}

// withoutLines says which assemblies of the program and its packages have no lines, and why.
func withoutLines(r *profile.Recording, missing []lines.Missing) []string {
	const most = 20
	framework := map[string]bool{}
	for i := range r.Functions {
		if f := &r.Functions[i]; f.Kind == snapshot.Managed && f.Origin() == snapshot.OfFramework {
			framework[f.Module] = true
		}
	}
	var out []string
	for _, m := range missing {
		if name := r.Assemblies[m.Assembly].Name; !framework[name] {
			out = append(out, fmt.Sprintf("%s has no source lines: %v.", name, m.Why))
		}
	}
	if more := len(out) - most; more > 0 {
		out = append(out[:most], fmt.Sprintf("%s no source lines.", counted(more, "further assembly has",
			"further assemblies have")))
	}
	return out
}

// counted returns a number of things in words.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
