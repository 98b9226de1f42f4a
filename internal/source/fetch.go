package source

import (
	"context"
	"sync"

	"clrsnap/internal/pe"
	"clrsnap/symbols"
)

// key identifies the PDB for a server.
func key(name string, view *pe.CodeView, d *pe.Debug) *symbols.Key {
	id := view.ID()
	k := &symbols.Key{Kind: symbols.PDB, Name: name, ID: id[:]}
	for _, c := range d.Checksums {
		k.Checksums = append(k.Checksums, symbols.Checksum{Algorithm: c.Algorithm, Sum: c.Sum})
	}
	return k
}

// Wanted reports whether the assembly's PDB was not found, and Fetch has not looked for it yet.
func (a *Assembly) Wanted() bool { return a.want != nil }

// Bounds of Fetch.
const (
	atOnce     = 4   // files at the same time
	maxFetched = 512 // files each time: few programs have so many assemblies on their stacks
)

// Fetch gets the PDBs of Wanted assemblies. Assemblies without a PDB have no lines. Fetch takes as
// long as from takes.
func (f *Finder) Fetch(ctx context.Context, from symbols.Source) {
	type result struct {
		a    *Assembly
		file symbols.File
		err  error
	}
	wanted, got := make(chan *Assembly), make(chan result)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for a := range wanted {
				file, err := from.Open(ctx, *a.want)
				got <- result{a, file, err}
			}
		})
	}
	var all []*Assembly
	for _, a := range f.pdbs {
		if a.want != nil && len(all) < maxFetched {
			all = append(all, a)
		}
	}
	go func() {
		for _, a := range all {
			wanted <- a
		}
		close(wanted)
		workers.Wait()
		close(got)
	}()
	for r := range got {
		f.fetched(ctx, r.a, r.file, r.err)
	}
}

// fetched takes the result of fetching an assembly's PDB. If ctx ended, the assembly is Wanted as
// before.
func (f *Finder) fetched(ctx context.Context, a *Assembly, file symbols.File, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	name, debug := a.want.Name, a.debug
	a.want, a.debug = nil, nil
	if err != nil {
		a.err = none("%s: %v", name, err)
		return
	}
	b, err := f.read(file, nil)
	if err == nil {
		err = f.match(a, debug, b)
	}
	if err != nil {
		a.err = none("%s: %v", name, err)
		return
	}
	a.err, a.soon = nil, false
}
