package name

import (
	"path"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
)

// PInvoke is a native function that managed code calls.
type PInvoke struct {
	Name    string    // of the function
	Library string    // as the program names the library, without a folder; QCall: the runtime itself
	Target  arch.Addr // address of the function; 0: not known
}

// Display returns the name of a frame that stands for the call.
func (p *PInvoke) Display() string {
	if p.Library == "" {
		return "[P/Invoke " + p.Name + "]"
	}
	return "[P/Invoke " + p.Name + " in " + p.Library + "]"
}

// PInvoke names the native function of the P/Invoke with the MethodDesc at an address; false: there is no P/Invoke.
func (n *Namer) PInvoke(desc arch.Addr) (p PInvoke, ok bool) {
	m, err := n.methods.Read(desc)
	if err != nil || m.Class != method.PInvoke {
		return p, false
	}
	a, err := n.assembly(m.Module)
	if err != nil {
		return p, false
	}
	i, ok, err := a.md.Import(m.RID)
	if err != nil || !ok {
		return p, false
	}
	p.Name, p.Library = i.Name, path.Base(i.Library)
	if i.Library == "" {
		p.Library = ""
	}
	p.Target, err = n.methods.Target(&m)
	return p, err == nil
}
