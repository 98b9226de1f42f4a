package name

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/pe"
)

// A Site is an instruction of a method's IL whose code may call a managed method.
type Site struct {
	IL     uint32 // offset
	Method string // the name of the called method, without the type; empty: the runtime chooses the method
}

// Bounds of the IL that is read of one process, in bytes, at once and over time.
const (
	maxIL       = 256 << 20
	ilPerSecond = 4 << 20
)

// Sites returns the sites of a method with metadata, in the order of their offsets.
func (n *Namer) Sites(m *method.Method) ([]Site, error) {
	a, err := n.assembly(m.Module)
	if err != nil {
		return nil, err
	}
	il, err := n.body(a, m.RID)
	if err != nil {
		return nil, err
	}
	sites, err := ecma335.Sites(il)
	if err != nil {
		return nil, err
	}
	out := make([]Site, 0, len(sites))
	for _, s := range sites {
		site := Site{IL: s.At}
		if s.Token != 0 {
			if site.Method, err = a.md.MethodName(s.Token); err != nil {
				return nil, err
			}
		}
		out = append(out, site)
	}
	return out, nil
}

// body reads a method's IL from its module's image.
func (n *Namer) body(a *assembly, rid uint32) ([]byte, error) {
	rva, err := a.md.MethodRVA(rid)
	if err != nil {
		return nil, err
	}
	if rva == 0 || a.id.base == 0 {
		return nil, fmt.Errorf("method %d has no IL in an image", rid)
	}
	at, err := pe.At(n.mem, a.id.base, rva)
	if err != nil {
		return nil, err
	}
	first, err := n.mem.Uint8(at)
	if err != nil {
		return nil, err
	}
	header := []byte{first}
	if !ecma335.TinyBody(first) {
		if header, err = n.mem.Bytes(at, ecma335.MaxBodyHeader); err != nil {
			return nil, err
		}
	}
	skip, size, err := ecma335.BodyHeader(header)
	if err != nil {
		return nil, err
	}
	if !n.il.Take(int64(size)) {
		return nil, fmt.Errorf("more than %d bytes of IL in a short time", maxIL)
	}
	return n.mem.Bytes(at+arch.Addr(skip), int(size))
}
