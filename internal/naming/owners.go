package naming

import (
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/assemblies"
	"clrsnap/internal/locate"
	"clrsnap/internal/module"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// Owner tells the owner of an assembly, by simple name and address of the image. The first call reads files beside
// the assemblies: a merely listed process has no use for the files.
func (n *Namer) Owner(assembly string, image arch.Addr) snapshot.Origin {
	if n.owners == nil {
		var bundle arch.Addr
		if in := n.singleFile(); in != nil {
			bundle = in.Start
		}
		n.owners = assemblies.New(n.target, bundle)
		n.owners.Read(n.engine.Maps)
	}
	return n.owners.Of(assembly, image, func() (string, bool) { return n.imageFile(assembly, image) })
}

// imageFile returns the path of the file from which an assembly's image was loaded, or of the single-file program
// with the image; "": the image was loaded from memory. known is false if the mappings may be too old to tell: the
// caller asks again later.
func (n *Namer) imageFile(assembly string, image arch.Addr) (path string, known bool) {
	if image == 0 {
		return "", true
	}
	for _, maps := range []target.Mappings{n.engine.Maps, n.maps} {
		m := maps.Find(image)
		if m != nil && m.IsFile() && (strings.EqualFold(assemblies.SimpleName(m.Path), assembly) || n.isBundle(m)) {
			return m.Path, true
		}
	}
	// The image has been loaded since, or from memory, or from a file of another name.
	now := n.Remapped()
	if now == nil {
		return "", false
	}
	if n.owners != nil {
		n.owners.Read(now)
	}
	if m := now.Find(image); m != nil && m.IsFile() {
		return m.Path, true
	}
	return "", true
}

// singleFile is the module of a single-file program; nil: the program is none.
func (n *Namer) singleFile() *module.Module {
	if n.found == nil || n.found.Shape != locate.SingleFile {
		return nil
	}
	return n.found.Module
}

// isBundle reports whether a mapping is of the single-file program.
func (n *Namer) isBundle(m *target.Mapping) bool {
	in := n.singleFile()
	return in != nil && m.Path == in.Path
}

// remapEvery is how often the mappings are read again at most, for the files of recently loaded assemblies.
const remapEvery = 100 * time.Millisecond

// Remapped reads the mappings again; nil: the last read is recent, or the mappings cannot be read.
func (n *Namer) Remapped() target.Mappings {
	if !n.changes() {
		return n.engine.Maps
	}
	if now := time.Now(); now.Sub(n.mapped) > remapEvery {
		n.mapped = now
		if maps, err := n.target.Mappings(); err == nil {
			n.maps = maps
			return maps
		}
	}
	return nil
}
