package name

import (
	"path"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
)

// PInvoke is a native function that managed code calls.
type PInvoke struct {
	Name    string    // of the function
	Library string    // as the program has it, without a folder; QCall: the runtime itself
	Target  arch.Addr // where the function is; 0 if that is not known
}

// Display is what a frame is called that stands for the call.
func (p *PInvoke) Display() string {
	if p.Library == "" {
		return "[P/Invoke " + p.Name + "]"
	}
	return "[P/Invoke " + p.Name + " in " + p.Library + "]"
}

// PInvoke names the native function of the P/Invoke whose MethodDesc is at an address. It returns
// false if there is no such thing.
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
