package origin

import (
	"errors"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
	"clrsnap/internal/target/recorded"
)

// Recording is a recorded process.
type Recording struct {
	*recorded.Moment
	Needed int    // how much of a Thread object must be there, in bytes
	buf    []byte // holds the stack of the last capture
}

// Alive implements Origin: a recording does not exit.
func (r *Recording) Alive() error { return nil }

// Close implements Origin.
func (r *Recording) Close() error { return nil }

// PID implements Origin.
func (r *Recording) PID() int { return r.Moment.PID }

// NSTid implements Origin.
func (r *Recording) NSTid(tid int) (int, error) {
	t, err := r.find(tid)
	if err != nil {
		return 0, err
	}
	return t.OwnID, nil
}

// Threads implements Origin.
func (r *Recording) Threads() (tids []int, err error) {
	for i := range r.Moment.Threads {
		tids = append(tids, r.Moment.Threads[i].TID)
	}
	return tids, nil
}

// Thread implements Origin.
func (r *Recording) Thread(tid int) (target.ThreadInfo, error) {
	t, err := r.find(tid)
	if err != nil {
		return target.ThreadInfo{}, err
	}
	return target.ThreadInfo{TID: tid, Name: t.Name}, nil
}

func (r *Recording) find(tid int) (*recorded.Thread, error) {
	if t, ok := r.Moment.Thread(tid); ok {
		return t, nil
	}
	return nil, &target.ThreadError{TID: tid, Err: target.ErrThreadExited}
}

// Capture implements Origin. The pieces of stack are valid until the next capture.
func (r *Recording) Capture(req *target.Request, out *target.Capture) error {
	t, err := r.find(req.TID)
	if err != nil {
		return err
	}
	return captureStill(r, &stillThread{t.Context, t.Syscall, r.Needed, &r.buf}, req, out)
}

// TryBlocked implements Origin. Threads of a recording need not be stopped, so there is nothing to try.
func (r *Recording) TryBlocked(*target.Request, *target.Capture) error { return errNotTried }

// Runs implements Origin.
func (r *Recording) Runs() error {
	return fmt.Errorf("process %d is a recording of one moment: only a running process can be recorded or can send "+
		"notifications", r.PID())
}

func (r *Recording) Crashed() int                           { return 0 }
func (r *Recording) CapturedAt(time.Time) time.Time         { return r.Time }
func (r *Recording) Missing(string) ([]string, bool)        { return nil, false }
func (r *Recording) Starting() bool                         { return false }
func (r *Recording) Relocated(arch.Addr) (arch.Addr, bool)  { return 0, false }
func (r *Recording) Proved(arch.Addr, *target.Mapping) bool { return true }
func (r *Recording) Refused(arch.Addr, error)               {}
func (r *Recording) Spoilt(*locate.Runtime, error) error    { return nil }

// LeftOut implements Origin.
func (r *Recording) LeftOut(err error) bool {
	_, unread := errors.AsType[*target.ReadError](err)
	return unread
}

// Record returns an origin with the answers of a core dump, and records all answers in m. m is empty, or has recorded
// the same core dump.
func Record(d *Dump, m *recorded.Moment) Origin {
	m.Machine, m.PID, m.Command, m.Time = d.Arch().Machine, d.PID(), d.Command(), d.Written()
	m.Program, _ = d.Executable()
	m.Threads = nil
	for _, t := range d.Core.Threads() {
		m.Threads = append(m.Threads, recorded.Thread{
			TID: t.TID, OwnID: d.OwnID(t.TID), Name: t.Name, Context: t.Context, Syscall: t.Syscall,
		})
	}
	return &recordedDump{Dump: d, rec: recorded.NewRecorder(d, m)}
}

// recordedDump is a core dump that is recorded.
type recordedDump struct {
	*Dump
	rec *recorded.Recorder
}

func (d *recordedDump) ReadMemory(p []byte, at arch.Addr) error   { return d.rec.ReadMemory(p, at) }
func (d *recordedDump) Mappings() (target.Mappings, error)        { return d.rec.Mappings() }
func (d *recordedDump) OpenFile(path string) (target.File, error) { return d.rec.OpenFile(path) }
func (d *recordedDump) OpenMapping(m *target.Mapping) (target.File, error) {
	return d.rec.OpenMapping(m)
}

// Capture implements Origin.
func (d *recordedDump) Capture(req *target.Request, out *target.Capture) error {
	err := d.Dump.Capture(req, out)
	if err == nil {
		d.rec.Copied(append(out.Stack.Extra, out.Stack.Region, target.Region{Base: req.Head, Data: out.Head})...)
	}
	return err
}
