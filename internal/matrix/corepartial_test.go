package matrix

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestCoreWithoutThreadObjects: a dump without some or all Thread objects still has the stacks of all threads, and says
// what may be wrong with the stacks.
func TestCoreWithoutThreadObjects(t *testing.T) { testenv.EachVersion(t, testCoreWithoutThreadObjects) }

func testCoreWithoutThreadObjects(t *testing.T, runtime string) {
	path := idleDump(t, testenv.Options{Runtime: runtime, Args: []string{"--threads", "8"}})
	whole := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{})
	var objects []uint64
	for _, th := range whole.Threads {
		if th.ThreadID != 0 {
			objects = append(objects, th.ThreadID)
		}
	}
	const said = " only: cannot read the runtime's list of threads"
	for _, lacking := range [][]uint64{objects[len(objects)/2:][:1], objects} {
		leaveOut(t, path, lacking)
		for _, native := range []bool{false, true} {
			snap := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{Options: clrsnap.Options{NativeOnly: native}})
			if missing := strings.Join(snap.Process.Core.Missing, "\n"); !strings.Contains(missing, said) {
				t.Errorf("missing: %q", missing)
			}
			unlisted := comparePartial(t, whole, snap)
			if unlisted == 0 || len(lacking) > 1 && unlisted != len(objects) {
				t.Errorf("%d of %d threads are not known to be the runtime's, without %d Thread objects",
					unlisted, len(objects), len(lacking))
			}
			t.Logf("without %d of %d Thread objects: %d threads unlisted", len(lacking), len(objects), unlisted)
		}
	}
}

// comparePartial compares a whole dump with a partial dump. unlisted is how many of the runtime's threads are no longer
// known as the runtime's.
func comparePartial(t *testing.T, whole, part *snapshot.Snapshot) (unlisted int) {
	t.Helper()
	if len(part.Threads) != len(whole.Threads) {
		t.Fatalf("%d of %d threads", len(part.Threads), len(whole.Threads))
	}
	for i := range part.Threads {
		was, is := &whole.Threads[i], &part.Threads[i]
		if strings.Contains(is.Error, "the dump has left the memory out") {
			// The missing pages also had other data for this walk, or the name of a method.
			if is.Complete || !isBegin(is.Frames, was.Frames) {
				t.Errorf("thread %d: complete %v, error %q\n%s",
					is.OSThreadID, is.Complete, is.Error, livetest.Text(is.Frames))
			}
			if was.ThreadID != 0 && is.ThreadID == 0 {
				unlisted++
			}
			continue
		}
		if was.ThreadID != 0 && is.ThreadID == 0 {
			unlisted++
			managed := len(livetest.OfKind(is.Frames, snapshot.Managed)) > 0
			said := strings.Contains(is.Error, "the runtime's Thread object was not found")
			if managed != said || managed == is.Complete {
				t.Errorf("thread %d: complete %v, error %q\n%s",
					is.OSThreadID, is.Complete, is.Error, livetest.Text(is.Frames))
			}
		} else if is.Complete != was.Complete || is.ThreadID != was.ThreadID {
			t.Errorf("thread %d: complete %v (%s), ThreadID %#x", is.OSThreadID, is.Complete, is.Error, is.ThreadID)
		}
		if is, was := livetest.Text(is.Frames), livetest.Text(was.Frames); is != was {
			t.Errorf("thread %d was\n%s, is\n%s", part.Threads[i].OSThreadID, was, is)
		}
	}
	return unlisted
}

// isBegin reports whether frames are the first frames of was. The frames may lack names.
func isBegin(is, was []snapshot.Frame) bool {
	if len(is) > len(was) {
		return false
	}
	for i := range is {
		if is[i].IP != was[i].IP || is[i].Method != "" && is[i].Method != was[i].Method {
			return false
		}
	}
	return true
}

// leaveOut takes the pages at some addresses out of a dump. Each segment with such a page becomes two segments, in a
// new table of program headers at the end of the file.
func leaveOut(t *testing.T, path string, at []uint64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	old, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	progs := make([]elf.ProgHeader, len(old.Progs))
	for i, p := range old.Progs {
		progs[i] = p.ProgHeader
	}
	for _, addr := range at {
		progs = withoutPage(progs, addr&^4095)
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range progs {
		if err := binary.Write(f, binary.LittleEndian, &elf.Prog64{
			Type: uint32(p.Type), Flags: uint32(p.Flags), Off: p.Off, Vaddr: p.Vaddr, Paddr: p.Paddr,
			Filesz: p.Filesz, Memsz: p.Memsz, Align: p.Align,
		}); err != nil {
			t.Fatal(err)
		}
	}
	const phoff, phnum = 32, 56 // in the ELF header
	where := binary.LittleEndian.AppendUint64(nil, uint64(end))
	number := binary.LittleEndian.AppendUint16(nil, uint16(len(progs)))
	_, err1 := f.WriteAt(where, phoff)
	_, err2 := f.WriteAt(number, phnum)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
}

func withoutPage(progs []elf.ProgHeader, page uint64) (out []elf.ProgHeader) {
	for _, p := range progs {
		if p.Type != elf.PT_LOAD || page < p.Vaddr || page >= p.Vaddr+p.Filesz {
			out = append(out, p)
			continue
		}
		below, above := p, p
		below.Memsz = page - p.Vaddr
		below.Filesz = below.Memsz
		skip := min(below.Memsz+4096, p.Filesz)
		above.Off, above.Vaddr, above.Filesz, above.Memsz = p.Off+skip, p.Vaddr+skip, p.Filesz-skip, p.Memsz-skip
		out = append(out, below, above)
	}
	return out
}

// TestCoreOfNonsense: a dump with a runtime that makes no sense is refused for that reason. clrsnap does not say that
// the program is still starting. The dump's native stacks can be had.
func TestCoreOfNonsense(t *testing.T) {
	const runtime = "net10:dotnet-10.0.8" // a runtime that does not describe itself
	testenv.Kit(t).Need(t, runtime)
	path := idleDump(t, testenv.Options{Runtime: runtime})
	whole := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{})
	for _, th := range whole.Threads {
		if th.ThreadID != 0 {
			overwrite(t, path, th.ThreadID, bytes.Repeat([]byte{0xa5}, 1024))
		}
	}
	_, err := clrsnap.OpenCore(context.Background(), path, clrsnap.CoreOptions{})
	livetest.WantSentence(t, err, "10.0.8", "its list of threads", "--native")
	if !errors.Is(err, clrsnap.ErrUnsupported) || strings.Contains(err.Error(), "starting") {
		t.Errorf("%v", err)
	}
	part := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{Options: clrsnap.Options{NativeOnly: true}})
	if len(part.Threads) != len(whole.Threads) {
		t.Errorf("%d of %d threads", len(part.Threads), len(whole.Threads))
	}
	for _, th := range part.Threads {
		if len(th.Frames) == 0 {
			t.Errorf("thread %d has no frames: %s", th.OSThreadID, th.Error)
		}
	}
}

// overwrite changes memory in a dump.
func overwrite(t *testing.T, path string, addr uint64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	has := func(p *elf.Prog) bool { return p.Type == elf.PT_LOAD && addr-p.Vaddr < p.Filesz }
	i := slices.IndexFunc(e.Progs, has)
	if i < 0 {
		t.Fatalf("the dump has nothing at %#x", addr)
	}
	if _, err := f.WriteAt(b, int64(e.Progs[i].Off+addr-e.Progs[i].Vaddr)); err != nil {
		t.Fatal(err)
	}
}

// TestCoreShrinks: if a dump is cut off during a read, its threads have no stacks and say why. No thread counts as
// ended.
func TestCoreShrinks(t *testing.T) {
	path := idleDump(t, testenv.Options{})
	p := openCore(t, path, clrsnap.CoreOptions{})
	defer p.Close()
	managed := 0
	snap, err := p.SnapshotAll(context.Background(), func(th *clrsnap.Thread) bool {
		if err := os.Truncate(path, 4096); err != nil {
			t.Fatal(err)
		}
		if th.ID != 0 {
			managed++
		}
		return th.ID != 0
	})
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(snap)
	for _, th := range snap.Threads {
		if len(th.Frames) > 0 || !strings.Contains(th.Error, "Thread object") ||
			!strings.Contains(th.Error, "the dump is cut off before the memory") {
			t.Errorf("thread %d has %d frames, error %q", th.OSThreadID, len(th.Frames), th.Error)
		}
	}
	if managed == 0 || len(snap.Threads) != managed {
		t.Errorf("%d of %d threads", len(snap.Threads), managed)
	}
}
