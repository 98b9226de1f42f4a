package iter

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"clrsnap/internal/testenv/layer"

	"github.com/cilium/ebpf/btf"
)

// TestLayout: all offsets, and the iterator's function, agree with another reader's results.
func TestLayout(t *testing.T) {
	l, err := readLayout()
	if errors.Is(err, errNoTypes) {
		layer.Lacking(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var hook *btf.Func
	if err := spec.TypeByName("bpf_iter_task", &hook); err != nil {
		t.Fatal(err)
	}
	if id, err := spec.TypeID(hook); err != nil || uint32(id) != l.hook {
		t.Errorf("the iterator's function is type %d, not %d (%v)", id, l.hook, err)
	}
	for _, c := range []struct {
		of, path string
		got      member
	}{
		{"task_struct", "__state", l.state}, {"task_struct", "on_cpu", l.onCPU}, {"task_struct", "flags", l.flags},
		{"task_struct", "exit_state", l.exit}, {"task_struct", "start_boottime", l.start},
		{"task_struct", "nvcsw", l.voluntary}, {"task_struct", "nivcsw", l.involuntary},
		{"task_struct", "se.sum_exec_runtime", l.ran}, {"task_struct", "sched_info.run_delay", l.waited},
		{"task_struct", "sched_info.pcount", l.runs}, {"task_struct", "thread_pid", l.threadPID},
		{"task_struct", "group_leader", l.leader}, {"pid", "level", l.level}, {"pid", "numbers", l.numbers},
		{"upid", "nr", l.nr},
	} {
		var s *btf.Struct
		if err := spec.TypeByName(c.of, &s); err != nil {
			t.Fatal(err)
		}
		at, size := place(s.Members, c.path)
		if at != int(c.got.at) || size > 0 && size != c.got.size.Sizeof() {
			t.Errorf("%s.%s: %+v, not at %d with %d bytes", c.of, c.path, c.got, at, size)
		}
	}
}

// place finds a member: -1 if there is none. The size of an array without a length is 0.
func place(members []btf.Member, path string) (at, size int) {
	name, rest, nested := strings.Cut(path, ".")
	for _, m := range members {
		inner, _ := btf.UnderlyingType(m.Type).(*btf.Struct)
		switch {
		case m.Name == name && nested:
			at, size = place(inner.Members, rest)
			return at + int(m.Offset.Bytes()), size
		case m.Name == name:
			size, _ = btf.Sizeof(m.Type)
			return int(m.Offset.Bytes()), size
		case m.Name == "" && inner != nil:
			if at, size = place(inner.Members, path); at >= 0 {
				return at + int(m.Offset.Bytes()), size
			}
		}
	}
	return -1, 0
}

// TestDamagedTypes: a description that is cut off, or wrong, ends in an error or another layout,
// and never in a panic.
func TestDamagedTypes(t *testing.T) {
	whole, err := os.ReadFile(typesFile)
	if err != nil {
		layer.Lacking(t, err.Error())
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	refused := 0
	for range 60 {
		data := whole[:random.IntN(len(whole))]
		if random.IntN(2) == 0 {
			data = append([]byte(nil), whole...)
			for range 1 + random.IntN(2000) {
				binary.LittleEndian.PutUint32(data[random.IntN(len(data)-4):], random.Uint32()>>random.IntN(32))
			}
		}
		l := new(layout)
		types, err := parseTypes(data, l.wanted()...)
		if err == nil {
			err = l.read(types)
		}
		if err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Errorf("seed %d: no description was refused", seed)
	}
}
