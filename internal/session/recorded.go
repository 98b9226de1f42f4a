package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
	"clrsnap/internal/target/recorded"
	"clrsnap/profile"
)

// OpenRecorded opens a recorded process. Everything that was asked of the process while it was recorded can be asked
// again; another question meets memory that was not recorded.
func OpenRecorded(ctx context.Context, m *recorded.Moment, o Options) (*Process, error) {
	r := &recording{Moment: m}
	o.MaxStack = target.MaxStackLimit
	p := &Process{from: r, Options: o}
	p.info = profile.Process{PID: m.PID, Command: m.Command, Core: &profile.Core{Writer: "recording"}}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	if p.Managed != nil {
		r.needed = p.Managed.Threads.Needed()
	}
	return p, nil
}

// recording is a recorded process as the origin of a Process.
type recording struct {
	*recorded.Moment
	needed int    // how much of a Thread object must be there, in bytes
	buf    []byte // holds the stack of the last capture
}

// Alive implements origin: a recording does not exit.
func (r *recording) Alive() error { return nil }

// Close implements origin.
func (r *recording) Close() error { return nil }

// PID implements origin.
func (r *recording) PID() int { return r.Moment.PID }

// NSTid implements origin.
func (r *recording) NSTid(tid int) (int, error) {
	t, err := r.find(tid)
	if err != nil {
		return 0, err
	}
	return t.OwnID, nil
}

// Threads implements origin.
func (r *recording) Threads() (tids []int, err error) {
	for i := range r.Moment.Threads {
		tids = append(tids, r.Moment.Threads[i].TID)
	}
	return tids, nil
}

// Thread implements origin.
func (r *recording) Thread(tid int) (target.ThreadInfo, error) {
	t, err := r.find(tid)
	if err != nil {
		return target.ThreadInfo{}, err
	}
	return target.ThreadInfo{TID: tid, Name: t.Name}, nil
}

func (r *recording) find(tid int) (*recorded.Thread, error) {
	if t, ok := r.Moment.Thread(tid); ok {
		return t, nil
	}
	return nil, &target.ThreadError{TID: tid, Err: target.ErrThreadExited}
}

// Capture implements origin. The pieces of stack are valid until the next capture.
func (r *recording) Capture(req *target.Request, out *target.Capture) error {
	t, err := r.find(req.TID)
	if err != nil {
		return err
	}
	return captureStill(r, &stillThread{t.Context, t.Syscall, r.needed, &r.buf}, req, out)
}

// TryBlocked implements origin. Threads of a recording need not be stopped, so there is nothing to try.
func (r *recording) TryBlocked(*target.Request, *target.Capture) error { return errNotTried }

// runs implements origin.
func (r *recording) runs() error {
	return fmt.Errorf("process %d is a recording of one moment: only a running process can be recorded or can send "+
		"notifications", r.PID())
}

func (r *recording) Crashed() int                           { return 0 }
func (r *recording) capturedAt(time.Time) time.Time         { return r.Time }
func (r *recording) note(*gathering) func()                 { return func() {} }
func (r *recording) noteTasks(*profile.Tasks)               {}
func (r *recording) starting() bool                         { return false }
func (r *recording) misses() int                            { return r.Misses() }
func (r *recording) Relocated(arch.Addr) (arch.Addr, bool)  { return 0, false }
func (r *recording) proved(arch.Addr, *target.Mapping) bool { return true }
func (r *recording) refused(arch.Addr, error)               {}
func (r *recording) spoilt(*locate.Runtime, error) error    { return nil }

// leftOut implements origin.
func (r *recording) leftOut(err error) bool {
	_, unread := errors.AsType[*target.ReadError](err)
	return unread
}

// furtherStack implements origin.
func (r *recording) furtherStack(pieces, left int) int { return stillFurther(pieces, left) }

// Record is OpenCore. All answers of the core dump are recorded in m, so OpenRecorded can repeat what was asked of the
// Process. m is empty, or has recorded the same core dump.
func Record(ctx context.Context, path string, m *recorded.Moment, o CoreOptions) (*Process, error) {
	return openCore(ctx, path, o, func(d *dump) origin {
		m.Machine, m.PID, m.Command, m.Time = d.Arch().Machine, d.PID(), d.Command(), d.Written()
		m.Program, _ = d.Executable()
		m.Threads = nil
		for _, t := range d.Core.Threads() {
			m.Threads = append(m.Threads, recorded.Thread{
				TID: t.TID, OwnID: d.OwnID(t.TID), Name: t.Name, Context: t.Context, Syscall: t.Syscall,
			})
		}
		return &recordedDump{dump: d, rec: recorded.NewRecorder(d, m)}
	})
}

// recordedDump is a core dump that is recorded.
type recordedDump struct {
	*dump
	rec *recorded.Recorder
}

func (d *recordedDump) ReadMemory(p []byte, at arch.Addr) error   { return d.rec.ReadMemory(p, at) }
func (d *recordedDump) Mappings() (target.Mappings, error)        { return d.rec.Mappings() }
func (d *recordedDump) OpenFile(path string) (target.File, error) { return d.rec.OpenFile(path) }
func (d *recordedDump) OpenMapping(m *target.Mapping) (target.File, error) {
	return d.rec.OpenMapping(m)
}

// Capture implements origin.
func (d *recordedDump) Capture(req *target.Request, out *target.Capture) error {
	err := d.dump.Capture(req, out)
	if err == nil {
		d.rec.Copied(append(out.Stack.Extra, out.Stack.Region, target.Region{Base: req.Head, Data: out.Head})...)
	}
	return err
}
