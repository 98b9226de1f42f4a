package session

import (
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/assemblies"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
	"clrsnap/profile"
)

// OpenFile implements assemblies.Source.
func (r running) OpenFile(path string) (target.File, error) {
	f, err := r.Process.OpenFile(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenFile implements assemblies.Source. The file may have changed since the process ran. It is used only to tell
// whose code something is.
func (d *dump) OpenFile(path string) (target.File, error) {
	f, err := d.Core.OpenFile(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Owner tells the owner of an assembly, by simple name and address of the image. The first call reads files beside
// the assemblies: a merely listed process has no use for the files.
func (p *Process) Owner(assembly string, image arch.Addr) profile.Origin {
	if p.owners == nil {
		var bundle arch.Addr
		if p.Found != nil && p.Found.Shape == locate.SingleFile {
			bundle = p.Found.Module.Start
		}
		p.owners = assemblies.New(p.from, bundle)
		p.owners.Read(p.Engine.Maps)
	}
	return p.owners.Of(assembly, image, func() (string, bool) { return p.imageFile(assembly, image) })
}

// imageFile returns the path of the file from which an assembly's image was loaded, or of the single-file program
// with the image; "": the image was loaded from memory. known is false if the mappings may be too old to tell: the
// caller asks again later.
func (p *Process) imageFile(assembly string, image arch.Addr) (path string, known bool) {
	if image == 0 {
		return "", true
	}
	for _, maps := range []target.Mappings{p.Engine.Maps, p.maps} {
		m := maps.Find(image)
		if m != nil && m.IsFile() && (strings.EqualFold(assemblies.SimpleName(m.Path), assembly) || p.isBundle(m)) {
			return m.Path, true
		}
	}
	// The image has been loaded since, or from memory, or from a file of another name.
	now := p.remapped()
	if now == nil {
		return "", false
	}
	if p.owners != nil {
		p.owners.Read(now)
	}
	if m := now.Find(image); m != nil && m.IsFile() {
		return m.Path, true
	}
	return "", true
}

// isBundle reports whether a mapping is of the single-file program.
func (p *Process) isBundle(m *target.Mapping) bool {
	return p.Found != nil && p.Found.Shape == locate.SingleFile && m.Path == p.Found.Module.Path
}

// remapEvery is how often the mappings are read again at most, for the files of recently loaded assemblies.
const remapEvery = 100 * time.Millisecond

// remapped reads the mappings again; nil: the last read is recent, or the mappings cannot be read.
func (p *Process) remapped() target.Mappings {
	if !p.moments.Changes() {
		return p.Engine.Maps
	}
	if now := time.Now(); now.Sub(p.mapped) > remapEvery {
		p.mapped = now
		if maps, err := p.from.Mappings(); err == nil {
			p.maps = maps
			return maps
		}
	}
	return nil
}
