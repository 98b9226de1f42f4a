package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// ringStress builds a program that writes to a ring with the agent's own code.
func ringStress(t *testing.T, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "ringstress")
	args := append(flags, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I../../agent", "-o", out,
		"testdata/ringstress.c", "../../agent/ring.c")
	if text, err := exec.Command(testenv.CC(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// TestWriters: many threads of another process write as fast as they can. Every loss is counted,
// and nothing is mixed up.
func TestWriters(t *testing.T) {
	layer.Live(t)
	t.Run("small ring", func(t *testing.T) {
		if c := testWriters(t, ringStress(t), 1<<13, 50000); c.Dropped == 0 {
			t.Errorf("the ring was never full: %+v", c)
		}
	})
	// The sanitizer does not see that our process has read a place before the writers use the
	// place again, so the ring is large enough for all records without reuse.
	t.Run("thread sanitizer", func(t *testing.T) {
		if c := testWriters(t, ringStress(t, "-g", "-fsanitize=thread"), 1<<24, 5000); c.Dropped != 0 {
			t.Errorf("the ring was full: %+v", c)
		}
	})
}

func testWriters(t *testing.T, program string, capacity, records int) Counts {
	const threads = 8
	r, file, err := newRing(capacity)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	defer file.Close()
	cmd := exec.Command(program, "3", strconv.Itoa(threads), strconv.Itoa(records))
	cmd.ExtraFiles = []*os.File{file}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	w := writers{next: make([]uint64, threads)}
	c := &Conn{ring: r}
	for running := true; running; {
		select {
		case err := <-ended:
			running = false
			if err != nil {
				t.Fatalf("%v\n%s", err, output.String())
			}
		case <-time.After(time.Millisecond):
		}
		if err := c.Drain(w.check); err != nil {
			cmd.Process.Kill()
			t.Fatal(err)
		}
	}
	counts := c.Stats()[EventAlloc]
	t.Logf("%+v", counts)
	if counts.Seen != uint64(threads*records) || counts.Published+counts.Dropped != counts.Seen ||
		counts.Published != w.records {
		t.Errorf("%+v, and %d records", counts, w.records)
	}
	return counts
}

// writers has the test's findings about the threads of ringstress.
type writers struct {
	next    []uint64 // number of each thread's next record, without dropped records
	records uint64
}

func (w *writers) check(r *Record) error {
	thread, number, dropped, sum := r.Values[0], r.Values[1], r.Values[2], r.Values[3]
	if thread >= uint64(len(w.next)) || sum != thread+number+dropped || number-dropped != w.next[thread] {
		return fmt.Errorf("values %d; next are %d", r.Values, w.next)
	}
	w.next[thread]++
	w.records++
	if uint64(len(r.Frames)) != (number*7+thread)%17 {
		return fmt.Errorf("record %d has %d frames", number, len(r.Frames))
	}
	for i, f := range r.Frames {
		if f.Function != thread+uint64(i) || f.IP != number+uint64(i) {
			return fmt.Errorf("record %d: frame %d is %+v", number, i, f)
		}
	}
	return nil
}

// TestRingRefused: the agent refuses memory that could be taken away, or that is not a ring.
func TestRingRefused(t *testing.T) {
	program := ringStress(t)
	open := func(f *os.File) error {
		cmd := exec.Command(program, "3", "1", "1")
		cmd.ExtraFiles = []*os.File{f}
		return cmd.Run()
	}
	memory := func(size, seals int) *os.File {
		fd, err := unix.MemfdCreate("test", unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "test")
		t.Cleanup(func() { f.Close() })
		good, _, err := newRing(minRing)
		if err != nil {
			t.Fatal(err)
		}
		defer good.close()
		if err := errors.Join(f.Truncate(int64(size)), writeAt(f, good.memory[:min(size, controlSize)])); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return f
	}
	const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK
	if err := open(memory(recordsAt+minRing, seals)); err != nil {
		t.Errorf("what is good: %v", err)
	}
	spoilt := memory(recordsAt+minRing, seals)
	if err := writeAt(spoilt, []byte("xxxx")); err != nil {
		t.Fatal(err)
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for name, f := range map[string]*os.File{
		"can shrink": memory(recordsAt+minRing, unix.F_SEAL_GROW),
		"can grow":   memory(recordsAt+minRing, unix.F_SEAL_SHRINK),
		"other size": memory(recordsAt+2*minRing, seals),
		"no records": memory(recordsAt, seals), "empty": memory(0, seals),
		"other magic": spoilt, "plain file": plain,
	} {
		if err := open(f); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func writeAt(f *os.File, b []byte) error {
	_, err := f.WriteAt(b, 0)
	return err
}
