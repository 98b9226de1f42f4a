package inlining

import "clrsnap/internal/ecma335"

// node is a method in the form for proofs.
type node struct {
	def     Definition
	name    string
	owner   string // type, in metadata form
	params  uint32
	renamed bool // implements a method, and so may have any name (II.22.27)
	helper  bool // of the runtime's compiler: may be called where IL has no call
	coreLib bool

	synchronized bool // takes a lock before the IL runs

	replaced bool // the compiled IL may be other IL, which calls methods of this kind only

	il    []site
	known bool // il is the compiled IL, unless replaced
}

// site is a call in IL.
type site struct {
	at      uint32
	op      ecma335.Opcode
	name    string
	params  uint32
	exact   Definition // zero: any method of that name
	virtual bool       // the callee may be an overriding method
	any     bool       // may call any method with such parameters: by a delegate, or a function pointer
}

// Bounds of the methods that are kept.
const (
	maxKnown = 1 << 13
	maxSites = 1 << 19 // of all: 40 MB, more or less
	maxCalls = 1 << 14 // of one: with more calls, the method's IL counts as not known
)

// implSynchronized is MethodImplAttributes.Synchronized (II.23.1.11).
const implSynchronized = 0x20

// node reads a method.
func (r *Reader) node(d Definition) (*node, error) {
	if n := r.known[d]; n != nil {
		return n, nil
	}
	n, err := r.readNode(d)
	if err != nil {
		return nil, err
	}
	if len(r.known) >= maxKnown || r.sites+len(n.il) > maxSites {
		clear(r.known)
		r.sites = 0
	}
	r.known[d] = n
	r.sites += len(n.il)
	return n, nil
}

func (r *Reader) readNode(d Definition) (*node, error) {
	a, err := r.names.Assembly(d.Module)
	if err != nil {
		return nil, err
	}
	md := a.Metadata
	def, err := md.MethodDef(d.RID)
	if err != nil {
		return nil, err
	}
	owner, err := md.MethodOwner(d.RID)
	if err != nil {
		return nil, err
	}
	n := &node{def: d, name: def.Name}
	if n.owner, err = md.TypeName(owner); err != nil {
		return nil, err
	}
	if n.params, err = ecma335.ParamCount(def.Signature); err != nil {
		return nil, err
	}
	if n.renamed, err = md.ImplementsOther(owner, d.RID); err != nil {
		return nil, err
	}
	n.synchronized = def.ImplFlags&implSynchronized != 0
	n.coreLib = a.Name == "System.Private.CoreLib"
	n.helper = n.coreLib && isHelper(n.owner, n.name)
	n.replaced = n.coreLib && staysWithin(n.owner)
	rva, err := md.MethodRVA(d.RID)
	if err != nil || rva == 0 || a.Base == 0 || n.coreLib && isReplaced(n.owner) && !n.replaced {
		return n, err
	}
	il, err := r.names.IL(d.Module, d.RID)
	if err != nil {
		return nil, err
	}
	calls, err := ecma335.Calls(il)
	if err != nil {
		return nil, err
	}
	if len(calls) > maxCalls {
		return n, nil
	}
	for i := range calls {
		if calls[i].Op == ecma335.OpLdftn || calls[i].Op == ecma335.OpLdvirtftn {
			continue // the call of the address is another site
		}
		s, err := readSite(md, d.Module, &calls[i])
		if err != nil {
			return nil, err
		}
		n.il = append(n.il, s)
	}
	n.known = true
	return n, nil
}
