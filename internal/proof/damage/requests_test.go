package damage

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestDamagedRequests damages, in a core dump of a web server, the objects of its requests and the memory around
// them. There is a result or an error; no panic, no hang, and not much more memory than for the intact dump.
func TestDamagedRequests(t *testing.T) {
	layer.Proof(t)
	a := testenv.Start(t, "requests", testenv.Options{Env: []string{"DOTNET_GCHeapHardLimit=0x4000000"}})
	hang(t, a)
	d := newDamage(t, testenv.GCoreDump(t, a.PID))
	intact, err := readRequests(d.path)
	if err != nil {
		t.Fatal(err)
	}
	before := allocated()
	if _, err := readRequests(d.path); err != nil {
		t.Fatal(err)
	}
	d.intact = allocated() - before
	d.onlyRequests(t, intact)
	changed := 0
	for n := range layer.Size(8, 2000) {
		rnd := rand.New(rand.NewPCG(uint64(n), 6))
		_, repair := d.change(t, rnd)
		before, begun := allocated(), live.OwnCPU()
		r, err := readRequests(d.path)
		if took := live.OwnCPU() - begun; took > hangLimit {
			t.Errorf("seed %d took %v", n, took)
		}
		if ratio := float64(allocated()-before) / float64(d.intact); ratio > 4 {
			t.Errorf("seed %d: %.1f times the memory of the intact dump", n, ratio)
		}
		if err != nil || gist(r) != gist(intact) {
			changed++
		}
		repair()
	}
	t.Logf("%d requests; %d damages have changed what is said of them", requestCount(intact), changed)
	if changed == 0 {
		t.Error("the damage is too little to show anything")
	}
}

// hang has some requests hang.
func hang(t *testing.T, a *testenv.App) {
	url := a.Ask("urls")[0]
	const count = 4
	for i := range count {
		go func() {
			if r, err := http.Get(fmt.Sprintf("%s/%s/%d?key=secret", url,
				[]string{"source", "delay", "semaphore", "several"}[i], i)); err == nil {
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		}()
	}
	for deadline := time.Now().Add(testenv.Hang); len(a.Ask("begun")) < count; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the requests do not begin")
		}
	}
}

func readRequests(path string) (*snapshot.Requests, error) {
	p, err := clrsnap.OpenCore(context.Background(), path, clrsnap.CoreOptions{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Requests(context.Background(), clrsnap.RequestsOptions{})
}

func requestCount(r *snapshot.Requests) (n int) {
	if r == nil {
		return -1
	}
	for i := range r.Requests {
		n += len(r.Requests[i].Requests)
	}
	return n
}

// gist is a short description of requests.
func gist(r *snapshot.Requests) string {
	s := fmt.Sprintln(requestCount(r), r.Unproven, r.ConsistentShare)
	for i := range r.Requests {
		g := &r.Requests[i]
		s += fmt.Sprintln(g.Path, g.Doing.State, len(g.Doing.Frames), g.Doing.Branches)
	}
	return s
}

// onlyRequests restricts the damage to the objects of requests: a request's objects are allocated together.
func (d *damage) onlyRequests(t *testing.T, r *snapshot.Requests) {
	t.Helper()
	const around = 64 << 10
	f, err := elf.NewFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	d.places = map[string][]span{}
	for i := range r.Requests {
		if w := r.Requests[i].Doing.WaitsFor; w != nil && w.Object != 0 {
			d.add(f, "objects", w.Object-around, 2*around)
		}
	}
	if len(d.places["objects"]) == 0 {
		t.Fatal("no objects")
	}
}
