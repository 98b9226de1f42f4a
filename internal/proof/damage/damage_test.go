package damage

import (
	"context"
	"debug/elf"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

var seed = flag.Int64("seed", -1, "try one damage on each dump, which another run has reported as seed `n`")

// damageSeeds are the numbers of the damages to try on each dump.
func damageSeeds(dumps int) []uint64 {
	if *seed >= 0 {
		return []uint64{uint64(uint32(*seed))}
	}
	seeds := make([]uint64, layer.Size(200, 5000)/dumps)
	for i := range seeds {
		seeds[i] = uint64(i)
	}
	return seeds
}

// hangLimit: reading a damaged core counts as hung after so much CPU time of this process. Elapsed time on a busy
// machine says nothing.
const hangLimit = 10 * time.Second

// TestDamagedCores damages a core dump in every way that disks, networks and enemies
// do: the dump is cut off, or bytes of its headers, notes, stacks and of the runtime's
// structures are changed. There is a result or an error; no panic, no hang, and at
// most twice the memory of the intact dump.
func TestDamagedCores(t *testing.T) {
	layer.Proof(t)
	kinds := []testenv.DumpKind{testenv.DumpNormal, testenv.DumpTriage, testenv.DumpKernel}
	seeds := damageSeeds(len(kinds))
	for i, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			testenv.Kit(t).Need(t, "net9")
			a := testenv.Start(t, "scenarios", testenv.DumpOptions(t, kind, testenv.Options{Runtime: "net9"}))
			d := newDamage(t, testenv.Dump(t, a, kind))
			for _, seed := range seeds {
				d.try(t, uint64(i)<<32|seed)
			}
			t.Logf("%d refused, %d read in part, %d read whole; slowest %v; most memory %.1f times that of the "+
				"intact dump",
				d.refused, d.partly, d.whole, d.slowest, d.most)
			if len(seeds) > 1 && (d.refused == 0 || d.partly == 0 || d.whole == 0) {
				t.Error("the damage is too much or too little to show anything")
			}
		})
	}
}

// damage spoils a copy of a core dump, again and again.
type damage struct {
	path   string // of the copy
	file   *os.File
	size   int64
	places map[string][]span // parts of the file, by their contents
	intact uint64            // bytes allocated for the intact dump
	lack   int               // incomplete threads of the intact dump

	refused, partly, whole int
	slowest                time.Duration
	most                   float64
}

type span struct{ at, size int64 }

func newDamage(t *testing.T, path string) *damage {
	t.Helper()
	d := &damage{path: filepath.Join(t.TempDir(), "damaged"), places: map[string][]span{}}
	var err error
	if d.file, err = os.OpenFile(d.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.file.Close() })
	src, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if d.size, err = io.Copy(d.file, src); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	readCore(d.path) // work done only once is not the dump's
	before := allocated()
	snap, err := readCore(d.path)
	d.intact = allocated() - before
	if err != nil {
		t.Fatal(err)
	}
	d.lack = incompleteThreads(snap)
	d.locate(t, snap)
	t.Logf("%d MB, %d threads, %d MB allocated", d.size>>20, len(snap.Threads), d.intact>>20)
	return d
}

func readCore(path string) (*snapshot.Snapshot, error) {
	p, err := clrsnap.OpenCore(context.Background(), path, clrsnap.CoreOptions{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.SnapshotAll(context.Background(), nil)
}

func incompleteThreads(snap *snapshot.Snapshot) (n int) {
	for i := range snap.Threads {
		if !snap.Threads[i].Complete {
			n++
		}
	}
	return n
}

// allocated is how many bytes the program has allocated since its start.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// locate finds the places of the important parts in the file.
func (d *damage) locate(t *testing.T, snap *snapshot.Snapshot) {
	t.Helper()
	f, err := elf.NewFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind string, addr uint64, size int64) { d.add(f, kind, addr, size) }
	d.places["headers"] = []span{{0, 64 + 56*int64(len(f.Progs))}}
	for _, p := range f.Progs {
		switch {
		case p.Type == elf.PT_NOTE:
			d.places["notes"] = append(d.places["notes"], span{int64(p.Off), int64(p.Filesz)})
		case p.Type == elf.PT_LOAD && p.Filesz > 0:
			d.places["memory"] = append(d.places["memory"], span{int64(p.Off), int64(p.Filesz)})
		}
	}
	for _, th := range snap.Threads {
		if th.ThreadID != 0 {
			add("Thread objects", th.ThreadID, 1024)
		}
		for _, fr := range th.Frames {
			add("stacks", fr.SP, 64)
			if fr.FunctionID != 0 {
				add("MethodDescs", fr.FunctionID-64, 256)
				add("code headers", fr.IP-fr.Offset-64, 256)
			}
		}
	}
	for _, kind := range []string{"notes", "memory", "stacks", "Thread objects", "MethodDescs"} {
		if len(d.places[kind]) == 0 {
			t.Fatalf("no %s in the dump", kind)
		}
	}
}

// add adds a part of the program's memory, as far as the dump has the part.
func (d *damage) add(f *elf.File, kind string, addr uint64, size int64) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr < p.Vaddr+p.Filesz {
			at := int64(p.Off + addr - p.Vaddr)
			d.places[kind] = append(d.places[kind], span{at, min(size, int64(p.Off+p.Filesz)-at)})
		}
	}
}

// try damages the dump, reads it and repairs it.
func (d *damage) try(t *testing.T, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 6))
	what, repair := d.spoil(t, rnd)
	defer repair()
	type outcome struct {
		snap  *snapshot.Snapshot
		err   error
		bytes uint64
		took  time.Duration
	}
	done, begun := make(chan outcome, 1), live.OwnCPU()
	go func() {
		before := allocated()
		snap, err := readCore(d.path)
		done <- outcome{snap, err, allocated() - before, live.OwnCPU() - begun}
	}()
	var o outcome
	hung := time.After(testenv.Hang)
	for waits := true; waits; {
		over := false
		select {
		case o = <-done:
			waits = false
		case <-time.After(time.Second):
			over = live.OwnCPU()-begun > hangLimit
		case <-hung:
			over = true
		}
		if over {
			buf := make([]byte, 1<<16)
			t.Fatalf("seed %#x, %s: not done after %v of CPU time\n%s", seed, what, live.OwnCPU()-begun,
				buf[:runtime.Stack(buf, true)])
		}
	}
	d.slowest = max(d.slowest, o.took)
	ratio := float64(o.bytes) / float64(d.intact)
	d.most = max(d.most, ratio)
	if ratio > 2 {
		t.Errorf("seed %#x, %s: %d bytes allocated, %.1f times as many as for the intact dump", seed, what,
			o.bytes, ratio)
	}
	switch {
	case o.err != nil:
		d.refused++
	case incompleteThreads(o.snap) > d.lack:
		d.partly++
	default:
		d.whole++
	}
}

// spoil cuts the file off, or changes some of its bytes, and returns a function that undoes the damage.
func (d *damage) spoil(t *testing.T, rnd *rand.Rand) (what string, repair func()) {
	t.Helper()
	if rnd.IntN(4) == 0 {
		return d.cut(t, rnd)
	}
	return d.change(t, rnd)
}

// change changes some bytes of the file, and returns a function that undoes the change.
func (d *damage) change(t *testing.T, rnd *rand.Rand) (what string, repair func()) {
	t.Helper()
	kinds := make([]string, 0, len(d.places))
	for k := range d.places {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	kind := kinds[rnd.IntN(len(kinds))]
	var undo []func()
	for range 1 + rnd.IntN(20) {
		s := d.places[kind][rnd.IntN(len(d.places[kind]))]
		at := s.at + rnd.Int64N(s.size)
		undo = append(undo, d.write(t, at, value(rnd)))
	}
	return fmt.Sprintf("%d changes in %s", len(undo), kind), func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
}

// value makes the changed bytes: a flipped bit is the mildest, a huge number the worst.
func value(rnd *rand.Rand) func(old []byte) []byte {
	n := 1 << rnd.IntN(4)
	switch rnd.IntN(4) {
	case 0:
		return func(old []byte) []byte { return []byte{old[0] ^ 1<<rnd.IntN(8)} }
	case 1:
		return func([]byte) []byte { return make([]byte, n) }
	case 2:
		return func([]byte) []byte { return slices.Repeat([]byte{0xff}, n) }
	}
	return func([]byte) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
}

func (d *damage) write(t *testing.T, at int64, change func([]byte) []byte) (undo func()) {
	t.Helper()
	old := make([]byte, min(8, d.size-at))
	if _, err := d.file.ReadAt(old, at); err != nil {
		t.Fatal(err)
	}
	b := change(old)
	b = b[:min(len(b), len(old))]
	if _, err := d.file.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := d.file.WriteAt(old, at); err != nil {
			t.Fatal(err)
		}
	}
}

// cut shortens the file: half of the times within its headers and notes.
func (d *damage) cut(t *testing.T, rnd *rand.Rand) (what string, repair func()) {
	t.Helper()
	at := rnd.Int64N(d.size)
	if rnd.IntN(2) == 0 {
		notes := d.places["notes"][0]
		at = rnd.Int64N(notes.at + notes.size)
	}
	rest, err := os.CreateTemp(filepath.Dir(d.path), "rest")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(rest, io.NewSectionReader(d.file, at, d.size-at)); err != nil {
		t.Fatal(err)
	}
	if err := d.file.Truncate(at); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("cut off at %d of %d", at, d.size), func() {
		defer os.Remove(rest.Name())
		defer rest.Close()
		if _, err := io.Copy(io.NewOffsetWriter(d.file, at), io.NewSectionReader(rest, 0, d.size-at)); err != nil {
			t.Fatal(err)
		}
	}
}
