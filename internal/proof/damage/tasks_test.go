package damage

import (
	"context"
	"debug/elf"
	"math/rand/v2"
	"testing"

	"clrsnap"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestDamagedTasks damages the objects that lead to async methods, in a core dump: boxes, tasks, lists of
// continuations, and the memory around them. There is a result or an error; no panic, no hang, and not much more
// memory than for the intact dump.
func TestDamagedTasks(t *testing.T) {
	layer.Proof(t)
	a := testenv.Start(t, "tasks", testenv.Options{
		Args: []string{"--suspended", "1"}, Env: []string{"DOTNET_GCHeapHardLimit=0x4000000"}, // for a small dump
	})
	d := newDamage(t, testenv.GCoreDump(t, a.PID))
	intact, err := readTasks(d.path)
	if err != nil {
		t.Fatal(err)
	}
	before := allocated()
	if _, err := readTasks(d.path); err != nil {
		t.Fatal(err)
	}
	d.intact = allocated() - before
	d.onlyObjects(t, intact)
	changed := 0
	for n := range layer.Size(40, 2000) {
		rnd := rand.New(rand.NewPCG(uint64(n), 19))
		_, repair := d.change(t, rnd)
		before, begun := allocated(), live.OwnCPU()
		tasks, err := readTasks(d.path)
		if took := live.OwnCPU() - begun; took > hangLimit {
			t.Errorf("seed %d took %v", n, took)
		}
		if ratio := float64(allocated()-before) / float64(d.intact); ratio > 4 {
			t.Errorf("seed %d: %.1f times the memory of the intact dump", n, ratio)
		}
		if err != nil || chainCount(tasks) != chainCount(intact) {
			changed++
		}
		repair()
	}
	t.Logf("%d chains; %d damages have changed their number", chainCount(intact), changed)
	if changed == 0 {
		t.Error("the damage is too little to show anything")
	}
}

func readTasks(path string) (*snapshot.Tasks, error) {
	p, err := clrsnap.OpenCore(context.Background(), path, clrsnap.CoreOptions{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Tasks(context.Background(), clrsnap.TasksOptions{})
}

func chainCount(t *snapshot.Tasks) (n int) {
	if t == nil {
		return -1
	}
	for i := range t.Chains {
		n += t.Chains[i].Count
	}
	return n
}

// onlyObjects restricts the damage to the surroundings of awaited objects: the waiting methods were allocated
// together with their awaited objects.
func (d *damage) onlyObjects(t *testing.T, tasks *snapshot.Tasks) {
	t.Helper()
	const around = 4 << 10
	f, err := elf.NewFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	d.places = map[string][]span{}
	for i := range tasks.Chains {
		if w := tasks.Chains[i].WaitsFor; w != nil && w.Object != 0 {
			d.add(f, "objects", w.Object-around, 2*around)
		}
	}
	if len(d.places["objects"]) == 0 {
		t.Fatal("no objects")
	}
}
