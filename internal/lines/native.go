package lines

import (
	"context"
	"path"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/foreign"
	"clrsnap/internal/module"
	"clrsnap/internal/target"
	"clrsnap/profile"
	"clrsnap/snapshot"
	"clrsnap/symbols"
)

// libraries adds the lines of native code, and the names of its functions.
func (a *adder) libraries(ctx context.Context, from From) {
	all := a.byLibrary()
	if from.Library != nil {
		for i, locations := range all {
			if len(locations) == 0 {
				continue
			}
			if file, err := from.Library(int32(i)); err == nil {
				all[i] = a.library(file, locations)
			}
		}
	}
	if from.Remote == nil {
		return
	}
	var keys []symbols.Key
	var asked []int // indices of libraries
	for i := range all {
		if l := &a.r.Libraries[i]; len(all[i]) > 0 && len(l.BuildID) > 0 {
			keys = append(keys, symbols.Key{Kind: symbols.Debug, Name: l.Name, ID: l.BuildID})
			asked = append(asked, i)
		}
	}
	for n, got := range fetch(ctx, from.Remote, keys) {
		if got.err != nil {
			continue
		}
		if file, err := from.Files.Use(got.file, keys[n].ID); err == nil {
			a.library(file, all[asked[n]])
		}
	}
}

// NewFiles returns a finder of libraries' symbols in folders of this machine.
func NewFiles(dirs []string) *module.Files {
	return module.NewFiles(func(file string) (out []target.File) {
		for _, dir := range dirs {
			if f, err := foreign.Open(path.Join(dir, file)); err == nil {
				out = append(out, f)
			}
		}
		return out
	}, module.AllLines)
}

// FindLibrary is a From.Library: it looks for debug files, and for libraries, in the folders of files.
func FindLibrary(r *profile.Recording, files *module.Files) func(i int32) (*module.File, error) {
	return func(i int32) (*module.File, error) { return files.Find(r.Libraries[i].Name, r.Libraries[i].BuildID) }
}

// byLibrary returns the native locations without a name or a line, by library.
func (a *adder) byLibrary() [][]int32 {
	out := make([][]int32, len(a.r.Libraries))
	for i := range a.r.Locations {
		l := &a.r.Locations[i]
		if l.Library > 0 && (l.Line == 0 || a.nameless(l)) {
			out[l.Library] = append(out[l.Library], int32(i))
		}
	}
	return out
}

func (a *adder) nameless(l *profile.Location) bool {
	f := &a.r.Functions[l.Function]
	return f.Kind == snapshot.Native && f.Method == ""
}

// library adds the names and lines of locations in a library. It returns the locations still without a
// name or a line.
func (a *adder) library(file *module.File, locations []int32) (left []int32) {
	for _, i := range locations {
		l := &a.r.Locations[i]
		at := arch.Addr(l.Address)
		if a.nameless(l) {
			if f, offset, ok := file.Symbol(at); ok {
				l.Offset = offset + (l.Offset - l.Address) // the instruction pointer may be behind the address
				l.Function = a.function(profile.Function{
					Kind: snapshot.Native, Method: f.Name, Display: f.Name, Short: f.Short,
					Module: a.r.Functions[l.Function].Module,
				})
			}
		}
		if line, err := file.Line(at); err == nil && l.Line == 0 {
			l.Line = a.sources.Line(profile.Line{
				File: a.sources.File(profile.SourceFile{Name: line.File}), Line: int32(line.Line),
				Column: int32(line.Column),
			})
		}
		if l.Line == 0 || a.nameless(l) {
			left = append(left, i)
		}
	}
	return left
}

// function returns the index of a function, and adds it unless it is there.
func (a *adder) function(f profile.Function) int32 {
	if a.functions == nil {
		a.functions = map[profile.Function]int32{}
		a.r.Functions = slices.Clone(a.r.Functions)
		for i := range a.r.Functions {
			a.functions[a.r.Functions[i]] = int32(i)
		}
	}
	i, ok := a.functions[f]
	if !ok {
		i = int32(len(a.r.Functions))
		a.functions[f] = i
		a.r.Functions = append(a.r.Functions, f)
	}
	return i
}
