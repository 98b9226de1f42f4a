package record

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"clrsnap/internal/agent"
	"clrsnap/internal/testenv/role"
)

func TestMain(m *testing.M) { role.Main(m) }

// forger is an agent that reports, as fast as it can, exceptions of threads that do not exist.
// Descriptor 3 is its connection. Its output follows agent/protocol.h.
var forger = role.New("forger", func(role.Args) error {
	const (
		pid                 = 1
		hello, begun, begin = 1, 5, 0x100
		control, units      = 4096 + 4096*64, 256 // before the records; of a name
		recordSize          = 64 + 2*units
		head, tail          = 64, 128
		exception           = 2
	)
	le := binary.LittleEndian
	words := func(w ...uint32) (b []byte) {
		for _, v := range w {
			b = le.AppendUint32(b, v)
		}
		return b
	}
	if _, err := unix.Write(3, words(hello, 16, agent.Version, pid, 1, 1000)); err != nil {
		return err
	}
	message, rights := make([]byte, 4096), make([]byte, 4096)
	n, rn, _, _, err := unix.Recvmsg(3, message, rights, 0)
	if err != nil || n < 8 || le.Uint32(message) != begin {
		return io.ErrUnexpectedEOF
	}
	scms, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&scms[0])
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fds[0], &st); err != nil {
		return err
	}
	memory, err := unix.Mmap(fds[0], 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if _, err := unix.Write(3, words(begun, 24, 0, 0, 1<<3, 0, 10, 0)); err != nil {
		return err
	}
	go func() { // until told to leave
		os.NewFile(3, "connection").Read(message)
		os.Exit(0)
	}()
	word := func(offset int) *uint64 { return (*uint64)(unsafe.Pointer(&memory[offset])) }
	records, name := memory[control:], bytes.Repeat([]byte("x\x00"), units)
	for at := uint64(0); ; {
		r, size := records[at&uint64(len(records)-1):], uint64(recordSize)
		if at-atomic.LoadUint64(word(tail)) > uint64(len(records))-size {
			continue
		}
		if r[4] = exception; uint64(len(r)) < size {
			r[4], size = 0, uint64(len(r)) // padding, up to the end
		} else {
			var ts unix.Timespec
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
			le.PutUint64(r[8:], uint64(ts.Nano()))
			le.PutUint32(r[24:], uint32(1<<22+at)) // the thread
			le.PutUint64(r[56:], units)
			copy(r[64:], name)
		}
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&r[0])), uint32(size))
		at += size
		atomic.StoreUint64(word(head), at)
	}
})
