package damage

import (
	"context"
	"debug/elf"
	"math/rand/v2"
	"regexp"
	"testing"

	"clrsnap"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestDamagedHeap damages objects in a core dump, and arbitrary bytes in the dump's memory. The heap reader counts
// all objects, with texts, or with all references between objects. There is a result or an error; no panic, no hang,
// not much more memory than for the intact dump, and never more objects than the dump's memory has room for.
func TestDamagedHeap(t *testing.T) {
	layer.Proof(t)
	a := testenv.Start(t, "heap", testenv.Options{
		Args: []string{"--objects", "2000"}, Env: []string{"DOTNET_GCHeapHardLimit=0x4000000"}, // for a small dump
	})
	d := newDamage(t, testenv.GCoreDump(t, a.PID))
	d.objects(t)
	intact := make([]uint64, len(heapQuestions))
	var size uint64
	for i, o := range heapQuestions {
		before := allocated()
		h, err := readHeap(d.path, o)
		if err != nil {
			t.Fatal(err)
		}
		intact[i], size = allocated()-before, h.Objects().Bytes+h.Free()
	}
	changed, refused := 0, 0
	for n := range layer.Size(40, 3000) {
		rnd := rand.New(rand.NewPCG(uint64(n), 190))
		what, repair := d.change(t, rnd)
		kind := n % len(heapQuestions)
		before, begun := allocated(), live.OwnCPU()
		h, err := readHeap(d.path, heapQuestions[kind])
		if took := live.OwnCPU() - begun; took > hangLimit {
			t.Errorf("seed %d, %s: it took %v", n, what, took)
		}
		if ratio := float64(allocated()-before) / float64(intact[kind]); ratio > 4 {
			t.Errorf("seed %d, %s: %.1f times the memory of the intact dump", n, what, ratio)
		}
		switch {
		case err != nil:
			refused++
		case h.Objects().Bytes+h.Free() > 2*size:
			t.Errorf("seed %d, %s: %d bytes of objects, instead of %d", n, what, h.Objects().Bytes, size)
		case h.ConsistentShare < 1 || h.Objects().Bytes+h.Free() != size:
			changed++
		}
		repair()
	}
	t.Logf("%d bytes; %d damages have changed what was counted, and %d were refused", size, changed, refused)
	if changed == 0 {
		t.Error("the damage is too little to show anything")
	}
}

// heapQuestions are the questions to the heap, in turn.
var heapQuestions = []clrsnap.HeapOptions{
	{}, {MaxStrings: 100, Type: regexp.MustCompile(`\[`)}, {Retained: true}, {Roots: regexp.MustCompile(`Customer`)},
}

func readHeap(path string, o clrsnap.HeapOptions) (*snapshot.Heap, error) {
	p, err := clrsnap.OpenCore(context.Background(), path, clrsnap.CoreOptions{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Heap(context.Background(), o)
}

// objects restricts the damage to objects and arbitrary bytes.
func (d *damage) objects(t *testing.T) {
	t.Helper()
	h, err := readHeap(d.path, clrsnap.HeapOptions{Type: regexp.MustCompile(`.`), MaxInstances: 5000})
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	memory := d.places["memory"]
	d.places = map[string][]span{"memory": memory}
	for i := range h.Instances {
		d.add(f, "objects", h.Instances[i].Address-8, 32)
	}
	if len(d.places["objects"]) < 1000 {
		t.Fatalf("%d objects", len(d.places["objects"]))
	}
}
