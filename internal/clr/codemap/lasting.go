package codemap

import "clrsnap/internal/arch"

// lasting remembers code that is never unloaded: another address in such code needs no read.
type lasting struct {
	sections []section // the section of the latest address first; there are few sections
	codes    map[arch.Addr][]Code
	count    int // in codes
}

// Bounds of the remembered code.
const (
	maxLastingSections = 1 << 8
	maxLastingCodes    = 1 << 16 // entries: 120 bytes each, more or less
	maxLastingInPage   = 1 << 8
	maxLastingPages    = 16 // pages that remembered code may span
	lastingPage        = 12 // bits
)

// section returns the section of an address.
func (l *lasting) section(ip arch.Addr) (s section, ok bool) {
	for i := range l.sections {
		if s := &l.sections[i]; ip.In(s.begin, s.end) {
			l.sections[0], l.sections[i] = l.sections[i], l.sections[0] // most addresses are in the same section
			return l.sections[0], true
		}
	}
	return s, false
}

// addSection remembers a section. Lists of stubs change, and are not remembered.
func (l *lasting) addSection(s *section) {
	const changes = sectionCollectible | sectionRangeList | sectionInterpreter
	if s.flags&changes == 0 && len(l.sections) < maxLastingSections {
		l.sections = append(l.sections, *s)
	}
}

// code returns the code at an address.
func (l *lasting) code(ip arch.Addr) (c Code, ok bool) {
	in := l.codes[ip>>lastingPage]
	for i := range in {
		if ip.In(in[i].Start, in[i].End) {
			return in[i], true
		}
	}
	return c, false
}

// add remembers code.
func (l *lasting) add(c *Code) {
	if !c.Kind.Managed() || c.Collectible || c.End <= c.Start {
		return
	}
	first, last := c.Start>>lastingPage, (c.End-1)>>lastingPage
	if last-first >= maxLastingPages {
		return
	}
	if l.codes == nil || l.count >= maxLastingCodes {
		l.codes, l.count = map[arch.Addr][]Code{}, 0
	}
	for at := first; at <= last; at++ {
		if len(l.codes[at]) < maxLastingInPage {
			l.codes[at] = append(l.codes[at], *c)
			l.count++
		}
	}
}
