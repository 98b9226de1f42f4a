package engine

import (
	"errors"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/aot"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/contract"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
)

// Reasons why the runtime of a target cannot be read. The text around the errors has the version and the remedy.
var (
	// ErrNativeAOT: the program has no CoreCLR.
	ErrNativeAOT = errors.New("a native AOT program without CoreCLR")
	// ErrUnknown: neither the runtime nor clrsnap describes the layout of the runtime's structures.
	ErrUnknown = errors.New("the layout of the runtime's structures is not known")
	// ErrUnfit: the structures do not have the described layout, or the runtime is only starting and has not filled
	// the structures in yet.
	ErrUnfit = errors.New("the runtime's structures do not have the expected layout")
)

// threaded is a Source with a list of the target's threads, to compare with the runtime's list: a live process or a
// core dump, not a recording.
type threaded interface {
	Threads() ([]int, error)
	NSTid(tid int) (int, error) // the thread's id inside the target's PID namespace
}

// partial is a Source without some of the target's memory: a core dump.
type partial interface {
	// Lacks reports whether some of the n bytes at addr were the target's and are missing.
	Lacks(addr arch.Addr, n int) bool
}

// OpenRuntime finds the target's runtime and binds the runtime. The runtime's own descriptor comes first; if the
// descriptor has everything that clrsnap reads, clrsnap trusts the descriptor. Otherwise clrsnap's embedded
// descriptor completes the runtime's: the embedded descriptor of the runtime's version, or of the one version with
// the same contracts. A completed description is accepted only if the runtime's structures are consistent with the
// description, whether or not this build of the runtime was tested. With an error, OpenRuntime still returns a
// runtime that was found.
func (e *Engine) OpenRuntime() (*locate.Runtime, error) {
	r, err := e.Locate()
	if err != nil {
		return nil, err
	}
	if r.Shape == locate.NativeAOT {
		e.openAhead(r)
		return r, ErrNativeAOT
	}
	var unread error
	if e.Own, unread, err = e.ownDescriptor(r); err != nil {
		return r, err
	}
	enough := e.Own != nil && e.Own.Require(clr.Needs) == nil
	known, isKnown := contract.EmbeddedFor(r.Version, e.Arch.Machine)
	if !isKnown && enough {
		known, isKnown = contract.EmbeddedLike(e.Own, e.Arch.Machine)
	}
	d := e.Own
	if isKnown && (d != nil || r.Table != 0) {
		ours, err := e.embedded(known, r, enough)
		if err != nil {
			return r, err
		}
		d = merge(d, ours)
	}
	if d == nil {
		return r, fmt.Errorf("%w: .NET %s does not describe itself, and clrsnap has no description of this version",
			ErrUnknown, versionOf(r))
	}
	d.Runtime = r.Version
	if _, ok := e.src.(threaded); enough || !ok {
		return r, e.bind(r, d) // a recording was made of a runtime that had been checked
	}
	err = e.bindChecked(r, d, isKnown && known.Tested(r.Version))
	if unread != nil && errors.Is(err, ErrUnknown) {
		return r, unfit(r, unread) // the embedded descriptor is not enough without the runtime's own
	}
	return r, err
}

// openAhead opens what a native AOT program says of itself: the names of methods, and the runtime's structures. The
// program's stacks are complete without either.
func (e *Engine) openAhead(r *locate.Runtime) {
	at, err := r.Module.Lookup(contract.Symbol)
	if err != nil {
		return // up to .NET 10
	}
	d, err := contract.Parse(e.Cache, at)
	if err != nil {
		return
	}
	d.Runtime = r.Version
	if names, err := aot.Open(e.Cache, d); err == nil {
		e.Ahead = names
	}
	d = e.describeAhead(d)
	var a clr.Ahead
	if e.Ahead != nil {
		if types, err := aot.NewTypes(e.Cache, d, e.Ahead, heap.References); err == nil {
			a.Types, a.Places, e.Types = types, types.Places, types
		}
		a.Statics = func() ([]arch.Addr, error) { return e.Ahead.Statics(e.Cache) }
	}
	if m, err := clr.NewAhead(e.Cache, d, a); err == nil {
		e.Managed, e.Layout = m, d
	}
}

// managedTypes is the part of the runtime of a native AOT program that describes managed classes.
const managedTypes = "ManagedTypes"

// describeAhead completes the descriptor of a native AOT program: from the program's description of managed classes,
// and from ours.
func (e *Engine) describeAhead(d *contract.Descriptor) *contract.Descriptor {
	if part, err := d.Part(e.Cache, managedTypes); err == nil && part != nil {
		d = merge(d, part)
	}
	version := d.Runtime
	if v, ok := d.GlobalString("RuntimeProductVersionString"); ok {
		version = v
	}
	if known, ok := contract.EmbeddedAhead(version, e.Arch.Machine); ok {
		if ours, err := known.Layout(e.Cache, 0, 0); err == nil {
			d = merge(d, ours)
		}
	}
	return d
}

// ownDescriptor reads the runtime's own descriptor; nil: there is none, or reading it failed with the error unread.
func (e *Engine) ownDescriptor(r *locate.Runtime) (d *contract.Descriptor, unread, err error) {
	if r.Descriptor == 0 {
		return nil, nil, nil
	}
	d, err = contract.Parse(e.Cache, r.Descriptor)
	var left *target.ReadError
	if errors.As(err, &left) {
		return nil, err, nil // small dumps leave the descriptor out; the embedded one may be enough
	}
	if errors.Is(err, contract.ErrFormat) {
		return nil, nil, unfit(r, err) // perhaps the runtime's library is still being loaded
	}
	return d, nil, err
}

// embedded returns the embedded descriptor for the runtime. If the runtime's own descriptor is enough, the runtime's
// table, which a dump may lack, is not needed: the own descriptor has the addresses of the globals.
func (e *Engine) embedded(known *contract.Embedded, r *locate.Runtime, enough bool) (*contract.Descriptor, error) {
	d, err := known.Layout(e.Cache, r.Table, r.TableSize)
	switch {
	case err != nil && enough:
		return known.Layout(e.Cache, 0, 0)
	case err != nil:
		return nil, unfit(r, err)
	}
	return d, nil
}

// merge completes the runtime's own descriptor, if there is one, with ours, unless they contradict each other.
func merge(own, ours *contract.Descriptor) *contract.Descriptor {
	if own == nil {
		return ours
	}
	if d, ok := own.Complete(ours); ok {
		return d
	}
	return own
}

// bind is Bind for the runtime r.
func (e *Engine) bind(r *locate.Runtime, d *contract.Descriptor) error {
	err := e.Bind(d)
	if missing := (*contract.MissingError)(nil); errors.As(err, &missing) {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// bindChecked binds the runtime if the runtime's structures are consistent. A dump may lack the memory for the check:
// then the structures are accepted if this very build was tested.
func (e *Engine) bindChecked(r *locate.Runtime, d *contract.Descriptor, tested bool) error {
	if err := e.bind(r, d); err != nil {
		e.unbind()
		return err
	}
	err := e.check()
	if err == nil || tested && e.isLeftOut(err) {
		return nil
	}
	e.unbind()
	return unfit(r, err)
}

func unfit(r *locate.Runtime, err error) error {
	return fmt.Errorf("%w: .NET %s: %w", ErrUnfit, versionOf(r), err)
}

// isLeftOut reports whether an error is about memory that the target had and the dump lacks. An address without
// memory in the target was wrong in the first place.
func (e *Engine) isLeftOut(err error) bool {
	p, ok := e.src.(partial)
	unread, isRead := errors.AsType[*target.ReadError](err)
	return ok && isRead && p.Lacks(unread.Addr, unread.Len)
}

// checkTries is the number of checks of a running target's structures: the structures may change during a check.
const checkTries = 5

// moveTime is the time for the garbage collector to move objects before the second check. Each later check waits
// three times as long as the check before.
const moveTime = time.Millisecond

// check compares the runtime's structures with one another and with the target's
// threads.
func (e *Engine) check() error {
	rest := moveTime
	for n := 1; ; n++ {
		err := e.checkOnce()
		if err == nil || n == checkTries {
			return err
		}
		if errors.Is(err, clr.ErrUnconfirmed) {
			time.Sleep(rest)
			rest *= 3
		}
		e.Begin()
	}
}

func (e *Engine) checkOnce() error {
	before, err := e.tasks()
	if err != nil {
		return err
	}
	return e.Runtime.Check(clr.Outside{
		IsThread: func(id int) bool {
			if before == nil || before[id] {
				return true
			}
			now, err := e.tasks() // the thread may have started since
			return err == nil && now[id]
		},
		Compile: e.compile,
	})
}

// tasks returns the ids of the target's threads as the runtime knows them; nil: the source has no list of threads.
func (e *Engine) tasks() (map[int]bool, error) {
	l, ok := e.src.(threaded)
	if !ok {
		return nil, nil
	}
	tids, err := l.Threads()
	if err != nil {
		return nil, err
	}
	ids := make(map[int]bool, len(tids))
	for _, tid := range tids {
		if id, err := l.NSTid(tid); err == nil {
			ids[id] = true
		}
	}
	return ids, nil
}

func versionOf(r *locate.Runtime) string {
	if r.Version == "" {
		return "(of unknown version)"
	}
	return r.Version
}
