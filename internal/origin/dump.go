package origin

import (
	"errors"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
	"clrsnap/internal/target/core"
)

// Dump is a core dump.
type Dump struct {
	*core.Core
	// Needed is how much of a Thread object must be there, in bytes.
	Needed int
	// buf holds the stack of the last capture.
	buf []byte
}

// Alive implements Origin: a dump does not exit.
func (d *Dump) Alive() error { return nil }

// NSTid implements Origin.
func (d *Dump) NSTid(tid int) (int, error) {
	if _, err := d.find(tid); err != nil {
		return 0, err
	}
	return d.OwnID(tid), nil
}

// OpenFile implements assemblies.Source. The file may have changed since the process ran. It is used only to tell
// whose code something is.
func (d *Dump) OpenFile(path string) (target.File, error) {
	f, err := d.Core.OpenFile(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Threads implements Origin.
func (d *Dump) Threads() ([]int, error) {
	var tids []int
	for _, t := range d.Core.Threads() {
		tids = append(tids, t.TID)
	}
	return tids, nil
}

// Thread implements Origin.
func (d *Dump) Thread(tid int) (target.ThreadInfo, error) {
	t, err := d.find(tid)
	if err != nil {
		return target.ThreadInfo{}, err
	}
	return target.ThreadInfo{TID: tid, Name: t.Name}, nil
}

func (d *Dump) find(tid int) (*core.Thread, error) {
	if t, ok := d.Core.Thread(tid); ok {
		return t, nil
	}
	return nil, &target.ThreadError{TID: tid, Err: target.ErrThreadExited}
}

// Runs implements Origin.
func (d *Dump) Runs() error {
	return fmt.Errorf("process %d is a core dump: only a running process can be recorded or can send notifications",
		d.PID())
}

// CapturedAt implements Origin: the time when the dump was written.
func (d *Dump) CapturedAt(time.Time) time.Time { return d.Written() }

// Missing implements Origin.
func (d *Dump) Missing(so string) (list []string, dump bool) { return d.Core.Missing(so), true }

// Starting implements Origin. The process of a dump starts no more.
func (d *Dump) Starting() bool { return false }

// LeftOut implements Origin.
func (d *Dump) LeftOut(err error) bool {
	unread, ok := errors.AsType[*target.ReadError](err)
	return ok && d.Lacks(unread.Addr, unread.Len)
}

// Spoilt implements Origin: a file that the dump needs cannot be read, or the dump is cut off or
// damaged.
func (d *Dump) Spoilt(found *locate.Runtime, err error) error {
	var version *contract.UnknownVersionError
	if err == nil || errors.Is(err, engine.ErrNativeAOT) || errors.As(err, &version) {
		return nil
	}
	path := ""
	if file, ok := errors.AsType[*locate.FileError](err); ok {
		path = file.Path
	} else if found != nil {
		path = found.Module.Path
	}
	if lost := d.FileError(path); lost != nil {
		return lost
	}
	if damages := d.Damages(); len(damages) > 0 {
		if unread, ok := errors.AsType[*target.ReadError](err); ok && d.LeftOut(err) {
			err = fmt.Errorf("the runtime cannot be read without this memory: %w", unread)
		}
		return fmt.Errorf("%s: %w: copy or make the dump once more, or see native stacks only with --native",
			damages[0], err)
	}
	return nil
}

// TryBlocked implements Origin. Threads of a dump need not be stopped, so there is nothing to try.
func (d *Dump) TryBlocked(*target.Request, *target.Capture) error { return errNotTried }

var errNotTried = errors.New("threads of a core dump need not be stopped")

// Capture implements Origin. The pieces of stack are valid until the next capture.
func (d *Dump) Capture(req *target.Request, out *target.Capture) error {
	t, err := d.find(req.TID)
	if err != nil {
		return err
	}
	return captureStill(d, &stillThread{t.Context, t.Syscall, d.Needed, &d.buf}, req, out)
}

// Refused implements Origin.
func (d *Dump) Refused(image arch.Addr, why error) { d.Refuse(image, why) }

// Proved implements Origin.
func (d *Dump) Proved(image arch.Addr, _ *target.Mapping) bool { return d.Core.Proved(image) }
