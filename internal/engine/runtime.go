package engine

import (
	"errors"
	"fmt"

	"clrsnap/internal/clr"
	"clrsnap/internal/contract"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
)

// Why the runtime of a target cannot be read. The text that wraps them has the
// version and says what to do.
var (
	// ErrNativeAOT: the program has no CoreCLR.
	ErrNativeAOT = errors.New("a native AOT program without CoreCLR")
	// ErrUnknown: neither the runtime nor this program knows what its structures
	// look like.
	ErrUnknown = errors.New("its structures are not known")
	// ErrUnfit: the structures are not what they are taken for; those of a runtime
	// that is only starting are not what they will be.
	ErrUnfit = errors.New("its structures do not look as they should")
)

// lister is a Source that knows the target's threads too.
type lister interface {
	Threads() ([]int, error)
	NSTid(tid int) (int, error) // the thread's id inside the target's PID namespace
}

// OpenRuntime finds the target's runtime and binds it. What the runtime says of
// itself counts; what it does not say, this program's own descriptors add. They
// are believed only if the runtime's structures make sense with them, and a build
// that was never tested only if they make sense at all. The runtime that was found
// is there beside an error too, unless nothing was found.
func (e *Engine) OpenRuntime() (*locate.Runtime, error) {
	r, err := e.Locate()
	if err != nil {
		return nil, err
	}
	if r.Shape == locate.NativeAOT {
		return r, ErrNativeAOT
	}
	if e.Own, err = e.ownDescriptor(r); err != nil {
		return r, err
	}
	own := e.Own
	known, isKnown := contract.EmbeddedFor(r.Version, e.Arch.Machine)
	var ours []*contract.Descriptor
	if isKnown && (own != nil || r.Table != 0) {
		if ours, err = known.Layouts(e.Cache, r.Table, r.TableSize); err != nil {
			return r, err
		}
	}
	complete := own != nil && own.Require(clr.Needs) == nil
	_, running := e.src.(lister)
	switch {
	case complete && (!running || isKnown && known.Tested(r.Version)):
		// A recording was made of a runtime that was fine then.
		return r, e.Bind(merge(own, ours)[0])
	case own == nil && len(ours) == 0:
		return r, fmt.Errorf("%w: .NET %s does not describe itself, and this clrsnap has no description of it", ErrUnknown, versionOf(r))
	}
	return r, e.bindChecked(r, merge(own, ours), isKnown && known.Tested(r.Version))
}

// ownDescriptor reads what the runtime says of itself; nil is nothing.
func (e *Engine) ownDescriptor(r *locate.Runtime) (*contract.Descriptor, error) {
	if r.Descriptor == 0 {
		return nil, nil
	}
	d, err := contract.Parse(e.Cache, r.Descriptor)
	var left *target.ReadError
	if errors.As(err, &left) {
		return nil, nil // small dumps leave it out; what we know ourselves may do
	}
	if err != nil {
		return nil, err
	}
	d.Runtime = r.Version
	return d, nil
}

// merge completes the runtime's own descriptor, if it has one, with each of ours.
func merge(own *contract.Descriptor, ours []*contract.Descriptor) []*contract.Descriptor {
	if own == nil {
		return ours
	}
	var all []*contract.Descriptor
	for _, d := range ours {
		if d, ok := own.Complete(d); ok {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		all = append(all, own)
	}
	return all
}

// bindChecked binds the first of the layouts that the runtime's structures make
// sense with. A dump may lack what it takes to see that; then the first one that may
// do is believed, if this very build was tested.
func (e *Engine) bindChecked(r *locate.Runtime, layouts []*contract.Descriptor, tested bool) error {
	var failed error
	var possible *contract.Descriptor
	for _, d := range layouts {
		d.Runtime = r.Version
		err := e.Bind(d)
		if err == nil {
			err = e.check()
		}
		if err == nil {
			return nil
		}
		if failed == nil {
			failed = err
		}
		if _, unreadable := errors.AsType[*target.ReadError](err); unreadable && possible == nil {
			possible = d
		}
	}
	if tested && possible != nil {
		return e.Bind(possible)
	}
	e.unbind()
	return fmt.Errorf("%w: .NET %s: %w", ErrUnfit, versionOf(r), failed)
}

// checkTries is how often the structures of a running target are looked at, which
// may change while they are.
const checkTries = 5

// check holds the runtime's structures against one another and against the
// target's threads.
func (e *Engine) check() error {
	for n := 1; ; n++ {
		err := e.checkOnce()
		if err == nil || errors.Is(err, clr.ErrNotStarted) || n == checkTries {
			return err
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
			now, err := e.tasks() // it may have been started since
			return err == nil && now[id]
		},
		Compile: e.compile,
	})
}

// tasks returns the ids of the target's threads as the runtime knows them, nil
// where the source cannot tell.
func (e *Engine) tasks() (map[int]bool, error) {
	l, ok := e.src.(lister)
	if !ok {
		return nil, nil
	}
	tids, err := l.Threads()
	if err != nil {
		return nil, err
	}
	ids := make(map[int]bool, len(tids))
	own := true // PID namespace; one that is not ours
	for i, tid := range tids {
		id := tid
		if own {
			if id, err = l.NSTid(tid); err != nil {
				continue
			}
			own = i > 0 || id != tid
		}
		ids[id] = true
	}
	return ids, nil
}

func versionOf(r *locate.Runtime) string {
	if r.Version == "" {
		return "(of unknown version)"
	}
	return r.Version
}
