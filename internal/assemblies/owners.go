package assemblies

import (
	"fmt"
	"io"
	"path"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/bundle"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// Source is the target.
type Source interface {
	Mappings() (target.Mappings, error)
	// OpenMapping opens the file behind a mapping.
	OpenMapping(*target.Mapping) (target.File, error)
	// OpenFile opens a regular file by the path that the target sees.
	OpenFile(path string) (target.File, error)
}

// Owners says whose the assemblies of one process are. Owners is not safe for concurrent use.
type Owners struct {
	src    Source
	bundle arch.Addr // somewhere in the single-file program; 0: the program is no single file

	listed    map[string]snapshot.Origin // assemblies in the program's deps.json files, by simple names
	seen      map[string]bool            // paths of assemblies beside which a deps.json was looked for
	framework map[string]bool            // folders of shared frameworks
	programs  map[string]bool            // folders of programs
	known     map[key]snapshot.Origin
	deps      int // files that have been read
	bytes     int // of the read files
}

// key is a loaded assembly. Another image can take the place of the assembly's image.
type key struct {
	name  string
	image arch.Addr
}

// Bounds of Owners. Owners looks for a file beside each loaded assembly. Few assemblies have a deps.json; the deps.json
// of plugins count too.
const (
	maxSeen  = 1 << 14
	maxKnown = 1 << 14
	maxFiles = 64
	maxBytes = 64 << 20 // of all files
)

// New returns the Owners of a process. bundle is an address in the process's single-file program; 0: the program is no
// single file.
func New(src Source, bundle arch.Addr) *Owners {
	return &Owners{
		src: src, bundle: bundle,
		listed: map[string]snapshot.Origin{}, seen: map[string]bool{}, framework: map[string]bool{},
		programs: map[string]bool{}, known: map[key]snapshot.Origin{},
	}
}

// Read reads the files about the assemblies in the given mappings, each file once. Unreadable files count as missing.
func (o *Owners) Read(maps target.Mappings) {
	if o.bundle != 0 {
		o.readBundle(maps.Find(o.bundle))
		o.bundle = 0
	}
	for i := range maps {
		if p := maps[i].Path; maps[i].IsFile() && !o.seen[p] && SimpleName(p) != "" && len(o.seen) < maxSeen {
			o.seen[p] = true
			o.look(p)
		}
	}
}

const coreLib = "System.Private.CoreLib"

// look looks for files beside an assembly. An assembly with a deps.json, or a runtimeconfig.json, is a program, or a
// plugin.
func (o *Owners) look(file string) {
	name, folder := SimpleName(file), path.Dir(file)
	if name == coreLib {
		o.framework[folder] = true
		return
	}
	stem := file[:len(file)-len(".dll")]
	if text := o.read(stem + ".deps.json"); text != nil {
		o.add(text)
		o.programs[folder] = true
	} else if f, err := o.src.OpenFile(stem + ".runtimeconfig.json"); err == nil {
		f.Close()
		o.programs[folder] = true
		o.list(name, snapshot.OfUser)
	}
}

func (o *Owners) read(file string) []byte {
	if o.deps >= maxFiles || o.bytes >= maxBytes {
		return nil
	}
	f, err := o.src.OpenFile(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	o.deps++
	text, err := readFile(io.NewSectionReader(f, 0, maxDeps+1))
	o.bytes += len(text)
	if err != nil {
		return nil
	}
	return text
}

func (o *Owners) readBundle(m *target.Mapping) {
	if m == nil || !m.IsFile() {
		return
	}
	f, err := o.src.OpenMapping(m)
	if err != nil {
		return
	}
	defer f.Close()
	b, err := bundle.Open(f)
	if err != nil {
		return
	}
	if text, err := b.Deps(maxDeps); err == nil {
		o.add(text)
	}
}

// add adds the assemblies of a deps.json.
func (o *Owners) add(text []byte) {
	all, err := Parse(text)
	if err != nil {
		return
	}
	for name, of := range all {
		o.list(name, of)
	}
}

func (o *Owners) list(name string, of snapshot.Origin) {
	if rank[of] > rank[o.listed[name]] && len(o.listed) < maxListed {
		o.listed[name] = of
	}
}

// Of says whose an assembly is, by its simple name and the address of its image, 0 without an image. The result is ""
// where snapshot.Framework gives the same answer by the name alone. file returns the path of the image's file, "" if
// there is no file; known is false if the path may change.
func (o *Owners) Of(name string, image arch.Addr, file func() (path string, known bool)) snapshot.Origin {
	if name == "" {
		return ""
	}
	k := key{name, image}
	if of, ok := o.known[k]; ok {
		return of
	}
	from, settled := file()
	if !strings.EqualFold(SimpleName(from), name) { // a bundle, or a file of another name
		from = ""
	}
	of := o.decide(name, from)
	if of == byName(name) {
		of = ""
	}
	if settled {
		if len(o.known) >= maxKnown {
			clear(o.known)
		}
		o.known[k] = of
	}
	return of
}

// decide says whose an assembly is. The folder of a shared framework decides first: the loaded assembly is not always
// the assembly in the program's deps.json, because the newer assembly wins.
func (o *Owners) decide(name, file string) snapshot.Origin {
	if file != "" && o.isFramework(path.Dir(file)) {
		return snapshot.OfFramework
	}
	if of := o.listed[name]; of != "" {
		return of
	}
	of := byName(name)
	if file != "" && of == snapshot.OfFramework && o.isShared() {
		return snapshot.OfPackage // the framework's assemblies are elsewhere
	}
	return of
}

func byName(assembly string) snapshot.Origin {
	if snapshot.Framework(assembly) {
		return snapshot.OfFramework
	}
	return snapshot.OfUser
}

// isShared reports whether the framework is in a folder of its own.
func (o *Owners) isShared() bool {
	for folder := range o.framework {
		if !o.programs[folder] {
			return true
		}
	}
	return false
}

// isFramework reports whether a folder is the folder of a shared framework. Shared frameworks lie side by side, in
// shared/NAME/VERSION: Microsoft.NETCore.App, Microsoft.AspNetCore.App.
func (o *Owners) isFramework(folder string) bool {
	if o.programs[folder] {
		return false
	}
	if o.framework[folder] {
		return true
	}
	all := path.Dir(path.Dir(folder))
	for known := range o.framework {
		if !o.programs[known] && path.Base(all) == "shared" && path.Dir(path.Dir(known)) == all {
			return true
		}
	}
	return false
}

// readFile reads all of a file, unless it is too large for a deps.json.
func readFile(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxDeps+1))
	if err == nil && len(text) > maxDeps {
		err = fmt.Errorf("%w: it has more than %d bytes", errDeps, maxDeps)
	}
	return text, err
}
