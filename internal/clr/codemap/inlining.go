package codemap

import "clrsnap/internal/arch"

// Image is the ReadyToRun image of a piece of code.
type Image struct {
	ID     arch.Addr // distinguishes the images of one runtime
	Module arch.Addr // the module of the code; 0 for a composite image
	Base   arch.Addr
}

// r2rInfoModule is the offset in ReadyToRunInfo of its Module (readytoruninfo.h, m_pModule).
const r2rInfoModule = 0

// The sections of a ReadyToRun image about inlined methods (readytorun.h, READYTORUN_SECTION_INLINING_INFO2 and
// _CROSS_MODULE_INLINE_INFO).
const (
	r2rInlining      = 114
	r2rCrossInlining = 119
)

// Image returns the image of ReadyToRun code.
func (m *Map) Image(c *Code) (Image, error) {
	if c.image == nil {
		return Image{}, corrupt("no image has the code at %v", c.Start)
	}
	im := Image{ID: c.image.info, Base: c.Base}
	module, err := m.mem.Pointer(c.image.info + r2rInfoModule)
	if err != nil {
		return Image{}, err
	}
	// A composite image has its own ReadyToRunInfo, and none of its modules has the same ReadyToRunInfo.
	info, err := m.mem.Pointer(module + arch.Addr(m.l.ModR2R))
	if err == nil && info == c.image.info {
		im.Module = module
	}
	return im, nil
}

// Inlining returns the section with the inlined methods and their callers, within the image's module. cross reports
// whether another section has methods of other modules.
func (m *Map) Inlining(c *Code) (section []byte, cross bool, err error) {
	if c.image == nil {
		return nil, false, corrupt("no image has the code at %v", c.Start)
	}
	_, size, err := m.r2rSection(c.image, r2rCrossInlining)
	if err != nil {
		return nil, false, err
	}
	cross = size != 0
	rva, size, err := m.r2rSection(c.image, r2rInlining)
	if err != nil || size == 0 {
		return nil, cross, err
	}
	const maxInlining = 32 << 20
	if size > maxInlining {
		return nil, cross, corrupt("%d bytes say what was inlined in an image", size)
	}
	section, err = m.mem.Bytes(c.Base+arch.Addr(rva), int(size))
	return section, cross, err
}
