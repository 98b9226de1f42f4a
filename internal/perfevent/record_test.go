package perfevent

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"clrsnap/internal/arch"

	"golang.org/x/sys/unix"
)

// words makes a record of a type from 64-bit words, in the kernel's layout.
func words(kind, misc uint32, body ...uint64) []byte {
	b := binary.LittleEndian.AppendUint32(nil, kind)
	b = binary.LittleEndian.AppendUint16(b, uint16(misc))
	b = binary.LittleEndian.AppendUint16(b, uint16(headerSize+8*len(body)))
	for _, w := range body {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func two(low, high uint32) uint64 { return uint64(low) | uint64(high)<<32 }

// trailer is the end of every record except samples.
func trailer(time uint64) []uint64 { return []uint64{two(10, 11), time, 77, 3} }

func sampleWords(chain []uint64, abi uint64, stack []uint64, filled uint64) []uint64 {
	w := append([]uint64{0x1000, two(10, 11), 5000, 77, 3}, chain...)
	w = append(w, abi)
	if abi != unix.PERF_SAMPLE_REGS_ABI_NONE {
		for i := range uint64(numRegs) {
			w = append(w, 100+i)
		}
	}
	w = append(append(w, uint64(8*len(stack))), stack...)
	if len(stack) > 0 {
		w = append(w, filled)
	}
	return w
}

func TestParseSample(t *testing.T) {
	var r Record
	b := words(unix.PERF_RECORD_SAMPLE, 1,
		sampleWords([]uint64{4, ^uint64(0) - 127, 1 << 63, 1<<63 + 1, ^uint64(0) - 511},
			unix.PERF_SAMPLE_REGS_ABI_64, []uint64{7, 8, 9}, 16)...)
	ok, err := r.parse(b, true)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if r.Kind != Sampled || r.PID != 10 || r.TID != 11 || r.Time != 5000 || r.id != 77 || r.CPU != 3 || !r.InKernel {
		t.Errorf("%+v", r)
	}
	if !slices.Equal(r.Kernel, []uint64{1 << 63, 1<<63 + 1}) {
		t.Errorf("%x", r.Kernel)
	}
	if len(r.Stack) != 16 || u64(r.Stack, 8) != 8 || r.Truncated {
		t.Errorf("%x %v", r.Stack, r.Truncated)
	}
	// The order of the kernel's registers: ax bx cx dx si di bp sp ip, r8 to r15.
	c := r.Context
	if c.Machine != arch.MachineAMD64 || c.IP != 108 || c.Regs[arch.RAX] != 100 || c.Regs[arch.RBX] != 101 ||
		c.Regs[arch.RDI] != 105 || c.Regs[arch.RSP] != 107 || c.Regs[arch.R8] != 109 || c.Regs[arch.R15] != 116 ||
		c.Valid.Len() != 16 {
		t.Errorf("%+v", c)
	}
	for _, abi := range []uint64{unix.PERF_SAMPLE_REGS_ABI_NONE, unix.PERF_SAMPLE_REGS_ABI_32} {
		b = words(unix.PERF_RECORD_SAMPLE, 2, sampleWords(nil, abi, nil, 0)...)
		if ok, err := r.parse(b, false); !ok || err != nil || r.Context.Machine != 0 || r.Stack != nil || r.InKernel ||
			len(r.Kernel) != 0 {
			t.Errorf("ABI %d: %v %v %+v", abi, ok, err, r)
		}
	}
	b = words(unix.PERF_RECORD_SAMPLE, 2, sampleWords(nil, unix.PERF_SAMPLE_REGS_ABI_64, []uint64{7, 8}, 16)...)
	if ok, err := r.parse(b, false); !ok || err != nil || !r.Truncated || len(r.Stack) != 16 {
		t.Errorf("%v %v %+v", ok, err, r)
	}
}

func TestParseEvents(t *testing.T) {
	name := binary.LittleEndian.Uint64([]byte("worker\x00\x00"))
	for _, tt := range []struct {
		b    []byte
		want Record
	}{
		{words(unix.PERF_RECORD_FORK, 0, append([]uint64{two(20, 21), two(22, 23), 6000}, trailer(6001)...)...),
			Record{Kind: Started, PID: 20, ParentPID: 21, TID: 22, ParentTID: 23}},
		{words(unix.PERF_RECORD_EXIT, 0, append([]uint64{two(20, 21), two(22, 23), 6000}, trailer(6001)...)...),
			Record{Kind: Ended, PID: 20, TID: 22}},
		{words(unix.PERF_RECORD_COMM, 0, append([]uint64{two(20, 21), name}, trailer(6001)...)...),
			Record{Kind: Named, PID: 20, TID: 21, Name: "worker"}},
		{words(unix.PERF_RECORD_COMM, miscCommExec, append([]uint64{two(20, 21), name}, trailer(6001)...)...),
			Record{Kind: Executed, PID: 20, TID: 21, Name: "worker"}},
		{words(unix.PERF_RECORD_LOST, 0, append([]uint64{77, 12}, trailer(6001)...)...),
			Record{Kind: Lost, Lost: 12}},
		{words(unix.PERF_RECORD_THROTTLE, 0, append([]uint64{1, 2, 3}, trailer(6001)...)...),
			Record{Kind: Throttled, PID: 10, TID: 11}},
		{words(unix.PERF_RECORD_UNTHROTTLE, 0, append([]uint64{1, 2, 3}, trailer(6001)...)...), Record{}},
	} {
		var r Record
		ok, err := r.parse(tt.b, true)
		if err != nil || ok != (tt.want.Kind != 0) {
			t.Errorf("%v: %v %v", tt.want.Kind, ok, err)
		}
		if !ok {
			continue
		}
		if r.Time != 6001 || r.id != 77 || r.CPU != 3 {
			t.Errorf("%v: trailer %+v", tt.want.Kind, r)
		}
		if r.Kind != tt.want.Kind || r.PID != tt.want.PID || r.TID != tt.want.TID || r.ParentPID != tt.want.ParentPID ||
			r.ParentTID != tt.want.ParentTID || r.Name != tt.want.Name || r.Lost != tt.want.Lost {
			t.Errorf("%+v, want %+v", r, tt.want)
		}
	}
}

// TestParseShort: a record without its end is never accepted as whole.
func TestParseShort(t *testing.T) {
	whole := words(unix.PERF_RECORD_SAMPLE, 1,
		sampleWords([]uint64{1, 1 << 63}, unix.PERF_SAMPLE_REGS_ABI_64, []uint64{7, 8}, 16)...)
	fork := words(unix.PERF_RECORD_FORK, 0, append([]uint64{two(20, 21), two(22, 23), 6000}, trailer(6001)...)...)
	for _, b := range [][]byte{whole, fork} {
		var r Record
		for n := range len(b) {
			if _, err := r.parse(b[:n], true); !errors.Is(err, errRecord) {
				t.Errorf("%d of %d bytes: %v", n, len(b), err)
			}
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(words(unix.PERF_RECORD_SAMPLE, 1,
		sampleWords([]uint64{1, 1 << 63}, unix.PERF_SAMPLE_REGS_ABI_64, []uint64{7, 8}, 16)...), true)
	f.Add(words(unix.PERF_RECORD_SAMPLE, 1, sampleWords(nil, unix.PERF_SAMPLE_REGS_ABI_NONE, nil, 0)...), false)
	f.Add(words(unix.PERF_RECORD_COMM, 0, append([]uint64{two(20, 21), 0}, trailer(6001)...)...), false)
	var r Record
	f.Fuzz(func(t *testing.T, b []byte, chain bool) {
		ok, err := r.parse(b, chain)
		if ok && err == nil && (r.Kind == 0 || len(r.Stack)+8*len(r.Kernel)+len(r.Name) > len(b)) {
			t.Errorf("%+v", r)
		}
	})
}
