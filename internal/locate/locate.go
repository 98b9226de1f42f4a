// Package locate finds the .NET runtime in a process: the runtime's file, its version, and the address of its data
// descriptor.
package locate

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/elfx"
	"clrsnap/internal/module"
)

// Shape is how a program was deployed with its runtime.
type Shape string

// The shapes.
const (
	Shared        Shape = "shared"         // libcoreclr.so of an installed framework
	SelfContained Shape = "self-contained" // libcoreclr.so beside the program
	SingleFile    Shape = "single-file"    // inside the executable
	NativeAOT     Shape = "native AOT"     // no CoreCLR at all: a program or a library that was compiled ahead of time
)

// Runtime is a runtime in a process.
type Runtime struct {
	Module     *module.Module
	Version    string // such as "10.0.8"; empty if not known
	Shape      Shape
	Descriptor arch.Addr // of DotNetRuntimeContractDescriptor; 0: there is none
	Table      arch.Addr // of g_dacTable; 0: there is none
	TableSize  uint64    // in bytes
}

// ErrNotDotNet: there is no .NET runtime in the process.
var ErrNotDotNet = errors.New("not a .NET process: it has neither libcoreclr.so nor a .NET single-file host mapped")

// Exported symbols that identify a runtime's file (src/coreclr/hosts, src/coreclr/debug/runtimeinfo).
const (
	symInfo = "DotNetRuntimeInfo"

	library = "libcoreclr.so"
)

// FileError: a file with a runtime, or possibly with a runtime, cannot be read.
type FileError struct {
	What string // "the runtime's file" or "the executable"
	Path string
	Err  error
}

func (e *FileError) Error() string {
	return fmt.Sprintf("cannot read %s %s: %v", e.What, e.Path, e.Err)
}

// Unwrap returns why the file cannot be read.
func (e *FileError) Unwrap() error { return e.Err }

// Find looks for the runtime among the modules of a process. exe is the path of the executable, as the process sees
// it.
func Find(mods *module.Set, exe string) (*Runtime, error) {
	var unreadable error
	for _, m := range mods.All() {
		if m.Name == library {
			shape := SelfContained
			if strings.Contains(m.Path, "/shared/Microsoft.NETCore.App/") {
				shape = Shared
			}
			return describe(m, shape)
		}
	}
	// A single-file application maps parts of its own file as code more than once. Only the mapping of the executable
	// itself counts.
	for _, m := range mods.All() {
		if !isFile(m, exe) || isAheadOfTime(mods, m) {
			continue
		}
		r, err := host(m)
		if r != nil {
			return r, err
		}
		if err != nil && unreadable == nil {
			unreadable = err
		}
	}
	if r := aheadOfTime(mods, exe); r != nil {
		return r, nil
	}
	if unreadable != nil {
		return nil, &FileError{What: "the executable", Path: exe, Err: unreadable}
	}
	return nil, ErrNotDotNet
}

// isFile reports whether m is the file at a path. The kernel writes a newline in a path as \012. In mappings of a
// live process \012 is turned back into a newline, even if the name itself has \012.
func isFile(m *module.Module, path string) bool {
	return m.Path == path || m.Path == strings.ReplaceAll(path, `\012`, "\n")
}

// host looks for a runtime in the program's own executable.
func host(m *module.Module) (*Runtime, error) {
	for _, s := range []string{contract.Symbol, contract.TableSymbol, symInfo} {
		_, err := m.Lookup(s)
		if err == nil {
			return describe(m, SingleFile)
		}
		if !errors.Is(err, elfx.ErrNotFound) {
			return nil, err
		}
	}
	return nil, nil
}

// aheadOfTime looks for code compiled ahead of time: the program itself, or else the first library with a runtime of
// its own.
func aheadOfTime(mods *module.Set, exe string) *Runtime {
	var found *module.Module
	for _, m := range mods.All() {
		if found != nil && !isFile(m, exe) {
			continue
		}
		if isAheadOfTime(mods, m) {
			found = m
		}
	}
	if found == nil {
		return nil
	}
	return &Runtime{Module: found, Shape: NativeAOT, Version: compilerVersion(found)}
}

// isAheadOfTime reports whether a module has code that was compiled ahead of time, and the runtime of such code.
// Since .NET 11 this runtime has a description like CoreCLR's, with another flavor (src/coreclr/nativeaot/Runtime,
// datadescriptor.inc). Only CoreCLR has a table for debuggers. The table tells the two runtimes apart where a dump
// lacks the description.
func isAheadOfTime(mods *module.Set, m *module.Module) bool {
	if m.AheadOfTime() {
		return true
	}
	at, err := m.Lookup(contract.Symbol)
	if err != nil {
		return false
	}
	if _, err := m.Lookup(contract.TableSymbol); err == nil {
		return false
	}
	d, err := contract.Parse(mods.Memory(), at)
	if err != nil {
		return true
	}
	flavor, _ := d.GlobalString("RuntimeFlavor")
	return flavor == "NativeAot"
}

// compilerVersion reads the version of the compiler, also the version of the runtime that the compiler links in:
// ".NET: ilc 10.0.11-servicing.26373.116+e2f47b0…" (from .NET 9 on;
// src/coreclr/tools/aot/ILCompiler.Compiler/Compiler/ObjectWriter).
func compilerVersion(m *module.Module) string {
	img, err := m.Image()
	if err != nil {
		return ""
	}
	for _, s := range img.Comment() {
		if v, ok := strings.CutPrefix(s, ".NET: ilc "); ok {
			v, _, _ = strings.Cut(v, "-")
			v, _, _ = strings.Cut(v, "+")
			return v
		}
	}
	return ""
}

// size returns the size of a module's symbol, in bytes.
func size(m *module.Module, name string) uint64 {
	img, err := m.Image()
	if err != nil {
		return 0
	}
	s, err := img.Lookup(name)
	if err != nil {
		return 0
	}
	return s.Size
}

func describe(m *module.Module, shape Shape) (*Runtime, error) {
	r := &Runtime{Module: m, Shape: shape}
	addr, err := m.Lookup(contract.Symbol)
	switch {
	case err == nil:
		r.Descriptor = addr
	case !errors.Is(err, elfx.ErrNotFound):
		return nil, &FileError{What: "the runtime's file", Path: m.Path, Err: err}
	}
	if addr, err := m.Lookup(contract.TableSymbol); err == nil {
		r.Table, r.TableSize = addr, size(m, contract.TableSymbol)
	}
	r.Version = version(m)
	return r, nil
}

// version reads the version that the build stamps into the runtime's data ("@(#)Version 10.0.1226.56789 @Commit: …",
// eng/native/version): major, minor, and a third number whose last two digits count builds. Without a stamp, the
// version is the name of a shared framework's folder.
func version(m *module.Module) string {
	if img, err := m.Image(); err == nil {
		if v, ok := stamped(img); ok {
			return v
		}
	}
	dir := path.Base(path.Dir(m.Path))
	if strings.Contains(m.Path, "/shared/") && len(dir) > 0 && dir[0] >= '0' && dir[0] <= '9' {
		return dir
	}
	return ""
}

const (
	stamp    = "@(#)Version "
	stampLen = 64
	chunk    = 1 << 18
	maxScan  = 64 << 20 // bytes of one image, however many segments its headers list
)

// stamped searches the data segments, the writable segments first: the stamp is a plain variable.
func stamped(img *elfx.Image) (string, bool) {
	const load, write, execute = 1, 2, 1
	buf := make([]byte, chunk)
	left := uint64(maxScan)
	for _, writable := range []bool{true, false} {
		for _, p := range img.Progs {
			if p.Type != load || p.Flags&execute != 0 || (p.Flags&write != 0) != writable || p.Filesz > left {
				continue
			}
			for off := uint64(0); off < p.Filesz; off += chunk - stampLen {
				b := buf[:min(chunk, p.Filesz-off)]
				left -= min(left, uint64(len(b)))
				if img.ReadMemory(b, p.Vaddr+arch.Addr(off)) != nil {
					break
				}
				if i := bytes.Index(b, []byte(stamp)); i >= 0 {
					if v, ok := parseVersion(string(b[i+len(stamp) : min(len(b), i+stampLen)])); ok {
						return v, true
					}
				}
			}
		}
	}
	return "", false
}

func parseVersion(s string) (string, bool) {
	s, _, _ = strings.Cut(s, " ")
	f := strings.Split(s, ".")
	if len(f) < 3 {
		return "", false
	}
	n := make([]int, 3)
	for i := range n {
		v, err := strconv.Atoi(f[i])
		if err != nil || v < 0 {
			return "", false
		}
		n[i] = v
	}
	return fmt.Sprintf("%d.%d.%d", n[0], n[1], n[2]/100), true
}
