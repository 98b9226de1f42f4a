package session

import "clrsnap/internal/arch"

// images implements name.Images for a process: it recognises the files that the runtime has loaded.
type images struct{ p *Process }

// Proved implements name.Images.
func (i images) Proved(image arch.Addr) bool {
	m := i.p.Engine.Maps.Find(image)
	if m == nil { // the image has been loaded since
		if now := i.p.Remapped(); now != nil {
			m = now.Find(image)
		}
	}
	return m == nil || !m.IsFile() || i.p.from.Proved(image, m)
}

// Refused implements name.Images.
func (i images) Refused(image arch.Addr, why error) { i.p.from.Refused(image, why) }
