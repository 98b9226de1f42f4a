package module

import (
	"fmt"
	"sync"

	"clrsnap/internal/dwarfline"
	"clrsnap/internal/elfx"
	"clrsnap/internal/symbol"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind/cfi"
)

// image is the read part of a file, shared by all modules of the file. For a module with an unreadable file, image is
// read from memory, and is the module's own.
type image struct {
	file target.File // nil: the image is read from memory
	err  error       // why the file cannot be read
	elf  *elfx.Image
	cfi  *cfi.Table // nil: there is no unwind information
	bare bool
	syms *symbol.Table

	lines *dwarfline.Table // the image's own; nil: not asked for yet
	debug lazyDebug

	aheadOnce sync.Once
	ahead     bool
}

// open opens the file of a module, once.
func (s *Set) open(m *Module) (*image, error) {
	img := s.files[m.key.file]
	if img == nil {
		img = s.openFile(m)
		s.files[m.key.file] = img
	}
	return img, img.err
}

func (s *Set) openFile(m *Module) *image {
	f, err := s.opener(&m.exec)
	if err != nil {
		return &image{err: err}
	}
	elf, err := s.budget.Image(f)
	if err != nil {
		f.Close()
		return &image{err: fmt.Errorf("%s: %w", m.Path, err)}
	}
	img := s.newImage(elf)
	img.file = f
	return img
}

func (s *Set) newImage(elf *elfx.Image) *image {
	img := &image{elf: elf, syms: symbol.New(elf), bare: elf.NoFrames()}
	if f, err := elf.Frames(); err == nil {
		if t, err := cfi.New(f.Hdr, f.Frame, s.arch, elf.Reserve); err == nil {
			img.cfi = t
		}
	}
	return img
}

// aheadOfTime reports whether the image is a native AOT program or library of .NET, which contains its own runtime.
func (img *image) aheadOfTime() bool {
	img.aheadOnce.Do(func() {
		_, err := img.elf.Lookup("DotNetRuntimeDebugHeader") // src/coreclr/nativeaot/Runtime/DebugHeader.cpp
		img.ahead = err == nil
	})
	return img.ahead
}

func (img *image) close() {
	if img.debug.img != nil {
		img.debug.img.close()
	}
	if img.elf != nil {
		img.elf.Close()
	}
	if img.file != nil {
		img.file.Close()
	}
}
