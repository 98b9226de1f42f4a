package matrix

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestCutDumps cuts the dump of a crashed program off, as a full disk does. What the dump still has is shown: before
// the stack of the main thread begins, the exception of this thread is whole. What the dump lacks is said.
func TestCutDumps(t *testing.T) { testenv.EachVersion(t, testCutDumps) }

func testCutDumps(t *testing.T, runtime string) {
	types := []string{"4"}
	if testenv.Ordinary(runtime) {
		types = []string{"1", "2", "4"}
	}
	for _, typ := range types {
		t.Run("type-"+typ, func(t *testing.T) {
			o := testenv.Options{Runtime: runtime, Args: []string{"--mode", "inner", "--main"}}
			o = testenv.DumpOptions(t, testenv.DumpCrash, o)
			o.Env = append(o.Env, "DOTNET_DbgMiniDumpType="+typ)
			a := testenv.Start(t, "ordeal", o)
			a.Stop()
			path := a.CrashDump()
			whole := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{})
			want := exceptionText(crashedOf(t, whole).Exception)
			if !strings.Contains(want, "led to by another") || !strings.Contains(want, "the first of all") {
				t.Fatalf("the whole dump has the exception %q", want)
			}
			size := cutBefore(t, path, crashedOf(t, whole).Frames[0].SP)
			if e, _ := cutDump(t, path); !alike(exceptionText(e), want) {
				t.Errorf("without the main thread's stack: %s, want %s", exceptionText(e), want)
			}
			told := 0
			for _, share := range []int64{99, 98, 95, 90} {
				if cutTo(t, path, size/100*share) {
					told += checkCut(t, path, want, typ != withoutHeap)
				}
			}
			t.Logf("of %d bytes: %d parts have the exception", size, told)
		})
	}
}

// TestCutReference cuts a dump off segment by segment, until the exception is lost. In between lies what the thread
// refers to the exception with: then the exception is the only one on the heap, since the exception that led to it does
// not count.
func TestCutReference(t *testing.T) {
	layer.Matrix(t)
	o := testenv.Options{Runtime: "net10", Args: []string{"--mode", "inner", "--main"}}
	o = testenv.DumpOptions(t, testenv.DumpCrash, o)
	o.Env = append(o.Env, "DOTNET_DbgMiniDumpType=4")
	a := testenv.Start(t, "ordeal", o)
	a.Stop()
	path := a.CrashDump()
	whole := crashedOf(t, livetest.SnapshotCore(t, path, clrsnap.CoreOptions{}))
	want, found := exceptionText(whole.Exception), 0
	cutBefore(t, path, whole.Frames[0].SP)
	for _, p := range slices.Backward(segments(t, path)) {
		if !cutTo(t, path, int64(p.Off)) {
			continue
		}
		e, _ := cutDump(t, path)
		if strings.Contains(e.NoFrames, "exceptions with a stack trace are on the heap") {
			t.Errorf("%s", e.NoFrames)
		}
		if !alike(exceptionText(e), want) {
			break
		}
		if e.Uncertain != "" {
			found++
		}
	}
	if found == 0 {
		t.Error("the exception is never searched for on the heap")
	}
}

// segments are the segments of a dump with memory, in the order of the file.
func segments(t *testing.T, path string) (out []elf.ProgHeader) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Filesz > 0 {
			out = append(out, p.ProgHeader)
		}
	}
	return out
}

const withoutHeap = "1" // DbgMiniDumpType

// checkCut: the dump is refused, or the exception is right, or why the exception is missing is said. checkCut returns 1
// if the exception is there. heap: the dump has the heap, and so the exception.
func checkCut(t *testing.T, path, want string, heap bool) int {
	t.Helper()
	p, err := clrsnap.OpenCore(context.Background(), path, clrsnap.CoreOptions{})
	if err != nil {
		livetest.WantSentence(t, err, "the dump is cut off", "the runtime cannot be read without this memory",
			"--native")
		return 0
	}
	defer p.Close()
	_, err = p.Heap(context.Background(), clrsnap.HeapOptions{})
	heap = heap && err == nil // the collector's own data can be cut off, too
	e, missing := cutDump(t, path)
	switch got := exceptionText(e); {
	case e == nil && strings.Contains(missing, "exceptions are known of 0 threads only: "):
	case e == nil:
		t.Errorf("nothing is said about the exception: %s", missing)
	case alike(got, want):
		return 1
	case heap || !e.NoMessage || !strings.Contains(e.NoFrames, "the dump is cut off before the memory"):
		t.Errorf("exception %s (stack trace: %s), want %s", got, e.NoFrames, want)
	}
	return 0
}

// cutDump returns the exception of the thread that a dump's process died of, and what the dump lacks; nil: no exception
// is known.
func cutDump(t *testing.T, path string) (e *snapshot.ExceptionInfo, missing string) {
	t.Helper()
	snap := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{})
	if missing = strings.Join(snap.Process.Core.Missing, "\n"); !strings.Contains(missing, "the dump is cut off: ") {
		t.Errorf("missing: %q", missing)
	}
	return crashedOf(t, snap).Exception, missing
}

func crashedOf(t *testing.T, snap *snapshot.Snapshot) *snapshot.Thread {
	t.Helper()
	i := slices.IndexFunc(snap.Threads, func(th snapshot.Thread) bool { return th.Crashed })
	if i < 0 {
		t.Fatal("no thread has crashed")
	}
	return &snap.Threads[i]
}

// exceptionText is a chain of exceptions, without the mark of names that are not proved.
func exceptionText(e *snapshot.ExceptionInfo) string {
	var out strings.Builder
	for ; e != nil; e = e.Inner {
		out.WriteString(strings.ReplaceAll(e.Type, " (?)", "") + ": " + e.Message + "\n")
		for _, f := range e.Frames {
			out.WriteString(frameMark + f.Method + "\n")
		}
	}
	return out.String()
}

// alike compares two texts of exceptionText. In got, frames may lack names: the names are in memory of no file.
func alike(got, want string) bool {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	return slices.EqualFunc(a, b, func(got, want string) bool {
		return got == want || got == frameMark && strings.HasPrefix(want, frameMark)
	})
}

const frameMark = "  " // before the name of a method

// cutBefore cuts a dump off before the segment at an address, and returns the size of the whole dump.
func cutBefore(t *testing.T, path string, addr uint64) (size int64) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	_, p := segmentAt(t, path, addr)
	if !cutTo(t, path, int64(p.Off)) {
		t.Fatal("the main thread's stack is not in the dump")
	}
	return st.Size()
}

// segmentAt returns the segment of a dump around an address, and its number.
func segmentAt(t *testing.T, path string, addr uint64) (int, elf.ProgHeader) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	has := func(p *elf.Prog) bool { return p.Type == elf.PT_LOAD && addr-p.Vaddr < p.Filesz }
	i := slices.IndexFunc(f.Progs, has)
	if i < 0 {
		t.Fatalf("the dump has nothing at %#x", addr)
	}
	return i, f.Progs[i].ProgHeader
}

// leaveOutSegment makes a dump say that the dump has left out the segment around an address.
func leaveOutSegment(t *testing.T, path string, addr uint64) {
	t.Helper()
	i, _ := segmentAt(t, path, addr)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const phoff, size, filesz = 32, 56, 32
	var where [8]byte
	_, err1 := f.ReadAt(where[:], phoff)
	_, err2 := f.WriteAt(make([]byte, 8), int64(binary.LittleEndian.Uint64(where[:]))+int64(size*i+filesz))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
}

// cutTo cuts a file off; false: the file is smaller already.
func cutTo(t *testing.T, path string, size int64) bool {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() <= size {
		return false
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return true
}

// TestCoreWithoutFlight: where a dump lacks the stack of a thread, and so the record of an exception in flight, the
// exception that the thread threw last is shown, and said to be uncertain.
func TestCoreWithoutFlight(t *testing.T) { testenv.EachVersion(t, testCoreWithoutFlight) }

func testCoreWithoutFlight(t *testing.T, runtime string) {
	a := testenv.Start(t, "failing", testenv.Options{Runtime: runtime, Args: []string{"--hold", "catch,inner"}})
	path := testenv.GCoreDump(t, a.PID)
	livetest.EndsWell(t, a)
	whole := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{})
	want := map[int]string{}
	for _, th := range whole.Threads {
		if th.Exception == nil {
			continue
		}
		if th.Exception.Uncertain != "" {
			t.Errorf("thread %d: %s in the whole dump", th.OSThreadID, th.Exception.Uncertain)
		}
		want[th.OSThreadID] = exceptionText(th.Exception)
		leaveOutSegment(t, path, th.Frames[0].SP)
	}
	if len(want) != 2 {
		t.Fatalf("exceptions of %d threads in the whole dump, want 2", len(want))
	}
	for _, th := range livetest.SnapshotCore(t, path, clrsnap.CoreOptions{}).Threads {
		text, there := want[th.OSThreadID]
		if !there {
			continue
		}
		onStack := testenv.Framework(runtime) != "net8" // in .NET 8 the record is in the runtime's own memory
		if e := th.Exception; exceptionText(e) != text {
			t.Errorf("thread %d: %s, want %s", th.OSThreadID, exceptionText(e), text)
		} else if (e.Uncertain != "") != onStack {
			t.Errorf("thread %d: uncertain: %q", th.OSThreadID, e.Uncertain)
		}
	}
}
