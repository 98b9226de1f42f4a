package perfevent

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// openFilter loads the kernel's filter, and gives each ring its event for notes.
func (e *Events) openFilter() error {
	f, err := newKernelFilter(e.o.PID, e.o.Children)
	if err != nil {
		return err
	}
	e.filter = f
	for _, r := range e.rings {
		if err := e.openNotes(r); err != nil {
			return err
		}
	}
	return nil
}

// openNotes lets the program write notes into a ring.
func (e *Events) openNotes(r *ring) error {
	a := newAttr(unix.PERF_COUNT_SW_BPF_OUTPUT)
	a.Sample, a.Sample_type = 1, notesType
	a.Bits = a.Bits&^unix.PerfBitDisabled | unix.PerfBitSampleIDAll
	a.Read_format = e.attr.readFormat()
	fd, err := unix.PerfEventOpen(a, -1, r.cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	switch {
	case err == unix.ENODEV: // the CPU has been switched off
		return nil
	case err == unix.EINVAL && e.attr.retry(err):
		return e.openNotes(r)
	case err != nil:
		return wideError(err)
	}
	r.notes = fd
	if r.notesID, err = eventID(fd); err != nil {
		return err
	}
	if err := r.take(fd); err != nil {
		return err
	}
	if err := e.filter.notes.Put(uint32(r.cpu), uint32(fd)); err != nil {
		return filterError(err)
	}
	return nil
}

// closeFilter adds the lost notes. Each was lost together with its sample.
func (e *Events) closeFilter() {
	if e.filter == nil {
		return
	}
	e.filter.close()
	e.filter = nil
	for _, r := range e.rings {
		if r.notes >= 0 {
			e.lostSeen += countsOf(r.notes).lost
		}
		r.closeNotes()
	}
}

// A note begins like a sample: notesType has the same fields up to the CPU, then the size of the
// program's data, and the data.
const (
	notesType = sampleType&^(unix.PERF_SAMPLE_REGS_USER|unix.PERF_SAMPLE_STACK_USER) | unix.PERF_SAMPLE_RAW
	notesRaw  = sampleRest
)

// note is the program's data about the next sample.
type note struct {
	tid  int
	name string
}

func parseNote(b []byte) (note, error) {
	if len(b) < notesRaw+4+nameLen || binary.LittleEndian.Uint32(b[notesRaw:]) < nameLen {
		return note{}, errRecord
	}
	return note{pid(b, sampleTID+4), cString(b[notesRaw+4 : notesRaw+4+nameLen])}, nil
}
