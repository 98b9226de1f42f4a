// Package generics finds the instantiation of shared generic code that a frame runs.
//
// One piece of code serves all instantiations over reference types: the code of List<string> and of List<Order> is
// List<__Canon>. Code that needs to know its instantiation has a context: a MethodDesc or a MethodTable as a hidden
// argument, or the method's object. The GC info of the code has the slot of the frame that keeps the context, from
// the end of the prolog on.
//
// Sources (dotnet/runtime): src/coreclr/vm/eetwain.cpp (GetExactGenericsToken), vm/generics.cpp
// (GetExactInstantiationsOfMethodAndItsClassFromCallInformation), vm/stackwalk.cpp
// (CrawlFrame::GetExactGenericArgsToken), docs/design/coreclr/botr/shared-generics.md.
//
// A context counts only if its own code is the code of the frame. The MethodDesc must belong to the same method. The
// MethodTable must belong to the class that declares the method, or to a derived class. The code must have been
// compiled for each type argument. Otherwise the instantiation is not known.
package generics

import (
	"errors"
	"fmt"
	"strconv"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/gcinfo"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Names tells the type that stands for all reference types.
type Names interface {
	IsCanon(h arch.Addr) (bool, error)
	HasCanon(h ...arch.Addr) (bool, error)
}

// Reader reads contexts of one runtime. A Reader is not safe for concurrent use.
type Reader struct {
	mem     *target.Reader
	code    *codemap.Map
	types   *types.System
	methods *method.Reader
	names   Names
	version gcinfo.Version // of the JIT's GC info; 0: not known
	unknown error          // the runtime follows an unknown version of the contract
	l       layout

	places map[arch.Addr]Place // by the start of code that stays
}

type layout struct {
	Version    uint64 `global:"GCInfoVersion,optional"`
	ObjectMask uint64 `global:"ObjectToMethodTableUnmask"`
}

// New binds a reader to the runtime that d describes.
func New(mem target.Memory, d *contract.Descriptor, code *codemap.Map, ts *types.System, ms *method.Reader,
	names Names,
) (*Reader, error) {
	r := &Reader{
		mem: target.NewReader(mem), code: code, types: ts, methods: ms, names: names, places: map[arch.Addr]Place{},
	}
	if err := d.Bind(&r.l); err != nil {
		return nil, err
	}
	r.unknown = d.Allow(Contract, Versions...)
	if r.l.Version <= uint64(gcinfo.VersionNewest) {
		r.version = gcinfo.Version(r.l.Version)
	}
	return r, nil
}

// Base is the base of a context slot's offset.
type Base uint8

// The bases.
const (
	CallerSP      Base = iota // the stack pointer of the caller, after the return
	SP                        // the frame's own stack pointer
	FrameRegister             // the register of the Place
)

// Place is the place of the context in frames of a method.
type Place struct {
	Kind     gcinfo.Context
	Base     Base
	Register uint8  // of FrameRegister
	Offset   int32  // of the slot from the base, in bytes
	From     uint32 // offset in the method's code from which on the slot has its value
}

// ErrUnknown: the encoding of this runtime's GC info is not known.
var ErrUnknown = errors.New("the encoding of this runtime's GC info is not known: update clrsnap")

// Contract is the contract of GC info, and Versions are the known versions.
const Contract = "GCInfo"

var Versions = []contract.Version{"1", "c1"}

const maxPlaces = 1 << 16

// Place returns the place of the context in frames of c's method. Kind is NoContext if the frames keep no context.
func (r *Reader) Place(c *codemap.Code) (Place, error) {
	if p, ok := r.places[c.MethodStart]; ok && !c.Collectible {
		return p, nil
	}
	p, err := r.place(c)
	if err == nil && !c.Collectible {
		if len(r.places) >= maxPlaces {
			clear(r.places)
		}
		r.places[c.MethodStart] = p
	}
	return p, err
}

func (r *Reader) place(c *codemap.Code) (Place, error) {
	info, err := r.code.GCInfo(c)
	if err != nil || info.At == 0 {
		return Place{}, err
	}
	version := r.versionOf(&info)
	if version == 0 {
		return Place{}, ErrUnknown
	}
	h, err := r.header(info.At, version)
	if err != nil {
		return Place{}, err
	}
	p := Place{Kind: h.Context, Offset: h.Slot, From: h.PrologSize}
	switch {
	case version < gcinfo.VersionFromSP:
	case h.BaseRegister == gcinfo.NoRegister:
		p.Base = SP
	default:
		p.Base, p.Register = FrameRegister, h.BaseRegister
	}
	return p, nil
}

// Untracked returns the stack slots of c's method that hold the addresses of objects all the time, and the method's
// frame register.
func (r *Reader) Untracked(c *codemap.Code) ([]gcinfo.Slot, uint8, error) {
	info, err := r.code.GCInfo(c)
	if err != nil || info.At == 0 {
		return nil, 0, err
	}
	version := r.versionOf(&info)
	if version == 0 {
		return nil, 0, ErrUnknown
	}
	h, err := r.header(info.At, version)
	if err != nil {
		return nil, 0, err
	}
	// The length of the information is not known. A page is enough for all but huge methods.
	const page = 4096
	b, err := r.mem.Bytes(info.At, page-int(info.At%page))
	if err != nil {
		return nil, 0, err
	}
	slots, err := gcinfo.Untracked(b, version)
	if err != nil {
		more, err := r.mem.Bytes(info.At, len(b)+page)
		if err != nil {
			return nil, 0, err
		}
		if slots, err = gcinfo.Untracked(more, version); err != nil {
			return nil, 0, err
		}
	}
	return slots, h.BaseRegister, nil
}

func (r *Reader) versionOf(info *codemap.GCInfo) gcinfo.Version {
	if r.unknown != nil {
		return 0
	}
	if info.Major != 0 {
		return gcinfo.OfImage(info.Major)
	}
	return r.version
}

// header reads the header at an address. header reads the next page only if it must: the header can end with its
// page.
func (r *Reader) header(at arch.Addr, v gcinfo.Version) (gcinfo.Header, error) {
	const page = 4096
	if left := page - int(at%page); left < gcinfo.MaxHeader {
		b, err := r.mem.Bytes(at, left)
		if err != nil {
			return gcinfo.Header{}, err
		}
		if h, err := gcinfo.Decode(b, v); err == nil {
			return h, nil
		}
	}
	b, err := r.mem.Bytes(at, gcinfo.MaxHeader)
	if err != nil {
		return gcinfo.Header{}, err
	}
	return gcinfo.Decode(b, v)
}

// ErrOther: a context does not belong to the code.
var ErrOther = errors.New("the context of a generic method is that of another one")

// Exact returns the instantiation with a context of m, a method with shared code: the same method with the
// MethodTable and type arguments of the instantiation. The context is a MethodDesc or a MethodTable; for This, the
// context is the MethodTable of the object. Collectible tells whether a type among the arguments can be unloaded.
func (r *Reader) Exact(m *method.Method, kind gcinfo.Context, context arch.Addr) (out method.Method, err error) {
	out = *m
	switch kind {
	case gcinfo.MethodDesc:
		x, err := r.methods.Read(context)
		if err != nil {
			return out, err
		}
		if err := r.sameMethod(m, &x); err != nil {
			return out, err
		}
		out.MethodTable, out.Args = x.MethodTable, x.Args
	case gcinfo.MethodTable, gcinfo.This:
		canon, err := r.types.Canonical(m.MethodTable)
		if err != nil {
			return out, err
		}
		mt, ok, err := r.types.Ancestor(context, canon)
		if err != nil {
			return out, err
		}
		if !ok || len(m.Args) > 0 {
			return out, ErrOther
		}
		out.MethodTable = mt
	default:
		return out, ErrOther
	}
	t, err := r.types.Read(out.MethodTable)
	if err != nil {
		return out, err
	}
	for _, list := range [][]arch.Addr{t.Args, out.Args} {
		if has, err := r.names.HasCanon(list...); err != nil || has {
			return out, errors.Join(ErrOther, err)
		}
	}
	return out, nil
}

// sameMethod checks that x is an instantiation with the code of m.
func (r *Reader) sameMethod(m, x *method.Method) error {
	if m.RID == 0 || x.RID != m.RID || x.Module != m.Module || len(x.Args) != len(m.Args) {
		return ErrOther
	}
	a, err := r.types.Canonical(m.MethodTable)
	if err != nil {
		return err
	}
	b, err := r.types.Canonical(x.MethodTable)
	if err != nil {
		return err
	}
	if a != b {
		return ErrOther
	}
	for i, h := range x.Args {
		if ok, err := r.fits(h, m.Args[i]); err != nil || !ok {
			return errors.Join(ErrOther, err)
		}
	}
	return nil
}

// fits reports whether code for the type argument code serves the type argument h.
func (r *Reader) fits(h, code arch.Addr) (bool, error) {
	if h == code {
		return true, nil
	}
	value, err := r.types.IsValueType(h)
	if err != nil {
		return false, err
	}
	if !value {
		return r.names.IsCanon(code)
	}
	a, err := r.types.Canonical(h)
	if err != nil {
		return false, err
	}
	b, err := r.types.Canonical(code)
	return a == b, err
}

// Collectible reports whether an instantiation has a type that can be unloaded.
func (r *Reader) Collectible(m *method.Method) (bool, error) {
	left := maxTypes
	return r.collectible(append([]arch.Addr{m.MethodTable}, m.Args...), &left)
}

// maxTypes bounds the types in the arguments of one method.
const maxTypes = 1 << 10

func (r *Reader) collectible(handles []arch.Addr, left *int) (bool, error) {
	for _, h := range handles {
		if *left--; *left < 0 {
			return false, fmt.Errorf("%w: more than %s types", types.ErrCorrupt, strconv.Itoa(maxTypes))
		}
		t, err := r.types.Read(h)
		if err != nil || t.Collectible {
			return t.Collectible, err
		}
		inner := t.Args
		if t.Elem != 0 {
			inner = []arch.Addr{t.Elem}
		}
		if c, err := r.collectible(inner, left); err != nil || c {
			return c, err
		}
	}
	return false, nil
}

// ObjectTable returns the MethodTable in the first word of an object, without the bits that the garbage collector
// puts there.
func (r *Reader) ObjectTable(word uint64) arch.Addr { return arch.Addr(word &^ r.l.ObjectMask) }
