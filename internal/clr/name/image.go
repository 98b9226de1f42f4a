package name

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// versionAssembly is the version of the contract Loader that stands for .NET 8. .NET 8 is older than the contract:
// the Module does not hold the address of its image, but the PEAssembly leads to the image.
const versionAssembly contract.Version = "0"

// moduleLayout has the place of a Module's metadata (ceeload.h, class Module and struct DynamicMetadata: size, then
// bytes).
type moduleLayout struct {
	Base    uint32 `clr:"Module.Base"`
	Dynamic uint32 `clr:"Module.DynamicMetadata"`
	DynSize uint32 `clr:"DynamicMetadata.Size"`
	DynData uint32 `clr:"DynamicMetadata.Data"`
}

// assemblyLayout has the place in version 0 (ceeload.h, class ReflectionModule; peassembly.h, peimage.h,
// peimagelayout.h; sbuffer.h).
type assemblyLayout struct {
	PEAssembly uint32 `clr:"Module.PEAssembly"`
	Dynamic    uint32 `clr:"ReflectionModule.DynamicMetadata"`
	Image      uint32 `clr:"PEAssembly.PEImage"`
	Loaded     uint32 `clr:"PEImage.LoadedImageLayout"`
	Base       uint32 `clr:"PEImageLayout.Base"`
	BufferSize uint32 `clr:"SBuffer.Size"`
	BufferData uint32 `clr:"SBuffer.Buffer"`
}

// streamLayout has the place of the symbols that a Module was loaded with (ceeload.h, class Module, m_pIStreamSym,
// and class CGrowableStream; contract Loader, TryGetSymbolStream).
type streamLayout struct {
	Stream uint32 `clr:"Module.GrowableSymbolStream,optional"`
	Buffer uint32 `clr:"CGrowableSymbolStream.Buffer,optional"`
	Size   uint32 `clr:"CGrowableSymbolStream.Size,optional"`
}

// SymbolStream returns the address and the size in bytes of the symbols that came with an assembly loaded from
// memory; 0: there are none, or the place is not known.
func (n *Namer) SymbolStream(module arch.Addr) (at arch.Addr, size uint32, err error) {
	l := &n.streamL
	if l.Stream == contract.Absent || l.Buffer == contract.Absent || l.Size == contract.Absent {
		return 0, 0, nil
	}
	stream, err := n.mem.Pointer(module + arch.Addr(l.Stream))
	if err != nil || stream == 0 {
		return 0, 0, err
	}
	if at, err = n.mem.Pointer(stream + arch.Addr(l.Buffer)); err != nil {
		return 0, 0, err
	}
	size, err = n.mem.Uint32(stream + arch.Addr(l.Size))
	return at, size, err
}

// moduleID has the place of a module's metadata, and tells whether a Module's address still stands for the same
// module.
type moduleID struct {
	base     arch.Addr // of the image; 0: the module has none
	metadata arch.Addr // of a module that the program emits
	size     uint32    // of metadata, in bytes; the metadata grows
}

func (n *Namer) bindModules(d *contract.Descriptor) error {
	if err := d.Bind(&n.streamL); err != nil {
		return err
	}
	if err := d.Bind(&n.mapsL); err != nil {
		return err
	}
	if d.Contracts["Loader"] == versionAssembly {
		n.identify = n.assemblyID
		return d.Bind(&n.assemblyL)
	}
	n.identify = n.moduleID
	return d.Bind(&n.moduleL)
}

func (n *Namer) moduleID(module arch.Addr) (id moduleID, err error) {
	l := &n.moduleL
	dynamic, err := n.mem.Pointer(module + arch.Addr(l.Dynamic))
	if err != nil {
		return id, err
	}
	if dynamic == 0 {
		id.base, err = n.mem.Pointer(module + arch.Addr(l.Base))
		return id, err
	}
	id.metadata = dynamic + arch.Addr(l.DynData)
	id.size, err = n.mem.Uint32(dynamic + arch.Addr(l.DynSize))
	return id, err
}

// assemblyID: a module that a program emits has no image. Its Module is a ReflectionModule, with the metadata in a
// buffer.
func (n *Namer) assemblyID(module arch.Addr) (id moduleID, err error) {
	l := &n.assemblyL
	assembly, err := n.mem.Pointer(module + arch.Addr(l.PEAssembly))
	if err != nil {
		return id, err
	}
	image, err := n.mem.Pointer(assembly + arch.Addr(l.Image))
	if err != nil {
		return id, err
	}
	if image == 0 {
		return n.bufferID(module + arch.Addr(l.Dynamic))
	}
	loaded, err := n.mem.Pointer(image + arch.Addr(l.Loaded))
	if err != nil || loaded == 0 {
		return id, err
	}
	id.base, err = n.mem.Pointer(loaded + arch.Addr(l.Base))
	return id, err
}

// bufferID follows the pointer at an address to a buffer with metadata.
func (n *Namer) bufferID(at arch.Addr) (id moduleID, err error) {
	buffer, err := n.mem.Pointer(at)
	if err != nil || buffer == 0 {
		return id, err
	}
	if id.size, err = n.mem.Uint32(buffer + arch.Addr(n.assemblyL.BufferSize)); err != nil {
		return id, err
	}
	id.metadata, err = n.mem.Pointer(buffer + arch.Addr(n.assemblyL.BufferData))
	return id, err
}
