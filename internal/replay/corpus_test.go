package replay_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/replay"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
)

var update = flag.Bool("update", false, "write the corpora of TestRecord anew, from live processes")

// corpus lists the kept corpora.
func corpus(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.rec")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("there are no corpora")
	}
	return names
}

func read(t testing.TB, name string) *replay.Corpus {
	t.Helper()
	r, err := replay.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCorpus walks all recorded threads again.
func TestCorpus(t *testing.T) {
	for _, name := range corpus(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			r := read(t, name)
			errs := r.Verify()
			for _, err := range errs[:min(len(errs), 5)] {
				t.Error(err)
			}
			frames := 0
			threads := 0
			for _, m := range r.Moments {
				threads += len(m.Threads)
				for _, th := range m.Threads {
					for _, w := range th.Walks {
						frames += len(w.Frames)
					}
				}
			}
			t.Logf("%d moments, %d threads, %d frames, %d differences", len(r.Moments), threads, frames, len(errs))
		})
	}
}

// capture copies the threads of a program that holds still.
func capture(t *testing.T, a *testenv.App) (*live.Process, []*replay.Thread) {
	t.Helper()
	p, err := live.Open(a.PID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	p.Watchdog = 500 * time.Millisecond // a busy machine keeps the tracer waiting longer than users want
	e, err := engine.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	list, err := e.Runtime.Threads.List()
	if err != nil {
		t.Fatal(err)
	}
	names := map[int]string{}
	for _, s := range a.Stacks {
		names[s.TID] = s.Scenario
	}
	var out []*replay.Thread
	for i := range list {
		k := &list[i]
		if !k.Alive() {
			continue
		}
		th, err := replay.CaptureThread(p, k.OSID, k.Address, e.Runtime.Threads.HeadLen())
		if err != nil {
			t.Fatal(err)
		}
		if th.Name = names[k.OSID]; th.Name == "" {
			th.Name = "thread of the runtime"
		}
		out = append(out, th)
	}
	return p, out
}

// TestRecord records a live process, and walks the corpus: unchanged, as a file, and reduced to
// the pages that the walks need.
func TestRecord(t *testing.T) {
	kept := map[string]string{
		"net10": "scenarios.rec",
		"net9":  "scenarios-net9.rec", // other Frames, told apart by addresses in a table
	}
	testenv.EachOf(t, []string{"net10", "net9"}, func(t *testing.T, runtime string) {
		testRecord(t, runtime, filepath.Join("testdata", kept[runtime]))
	})
}

func testRecord(t *testing.T, runtime, kept string) {
	args := []string{"--only", "gen-nested,async-resumed,eh-nested,qsort-fnptr,dynamic-method,iface-castable"}
	if *update {
		args = nil
	}
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: args})
	p, threads := capture(t, a)
	r, err := replay.Capture(p, threads, "every scenario of the test program, blocked")
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) < 3 {
		t.Fatalf("only %d threads", len(threads))
	}
	for _, th := range threads {
		if w := th.Walks[replay.Unwind]; !w.Complete || len(w.Frames) < 3 {
			t.Errorf("%s: walked while recorded:\n%v", th.Name, &w)
		}
	}
	verify(t, "as recorded", r)
	if err := r.Minimize(); err != nil {
		t.Fatal(err)
	}
	verify(t, "reduced", r)
	name := filepath.Join(t.TempDir(), "x.rec")
	if *update {
		name = kept
	}
	if err := r.WriteFile(name); err != nil {
		t.Fatal(err)
	}
	verify(t, "from a file", read(t, name))
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d threads, %d pages of memory, %d bytes", len(threads), len(r.Moments[0].Memory.Data), st.Size())

	// The check can fail: it notices a frame that differs from the recorded frame.
	w := threads[0].Walks[replay.Unwind]
	w.Frames = slices.Clone(w.Frames)
	w.Frames[1].IP++
	threads[0].Walks[replay.Unwind] = w
	if errs := r.Verify(); len(errs) != 1 {
		t.Errorf("a wrong frame gives %d differences", len(errs))
	}
}

func verify(t *testing.T, what string, r *replay.Corpus) {
	t.Helper()
	for _, err := range r.Verify() {
		t.Errorf("%s: %v", what, err)
	}
}

// TestDamagedFile cuts and changes a corpus: the result is an error, or another corpus, but no
// panic.
func TestDamagedFile(t *testing.T) {
	data, err := os.ReadFile(corpus(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(data); n += 1 + len(data)/200 {
		if _, err := replay.Read(bytes.NewReader(data[:n])); !errors.Is(err, replay.ErrFormat) {
			t.Errorf("cut at %d: %v", n, err)
		}
		changed := bytes.Clone(data)
		changed[n] ^= 0x55
		if r, err := replay.Read(bytes.NewReader(changed)); err == nil {
			t.Errorf("byte %d changed, and still %d moments", n, len(r.Moments))
		}
	}
	if _, err := replay.ReadFile("no such file"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestNothingMadeUp: bytes that were not recorded cannot be read.
func TestNothingMadeUp(t *testing.T) {
	r, m := &replay.Corpus{Machine: arch.MachineAMD64}, &replay.Moment{}
	var b [8]byte
	var re *target.ReadError
	if err := r.Source(m).ReadMemory(b[:], 0x1000); !errors.As(err, &re) {
		t.Error(err)
	}
	if _, err := r.Source(m).OpenMapping(&target.Mapping{Path: "/x"}); err == nil {
		t.Error("a file that was not recorded was opened")
	}
	if _, err := r.Open(m); err == nil {
		t.Error("an empty corpus was opened")
	}
}
