package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// What any file may make clrsnap view use. The bound of time is no measure: it ends what
// would go on for ever.
const (
	viewMemory = 1_000_000_000 // bytes
	viewOutput = 1 << 30
	viewTime   = 3 * time.Minute
)

// bomb is a file that becomes more than it seems. A further one is a line of bombs.
type bomb struct {
	name  string
	write func(w io.Writer) // what gzip packs
	says  string            // part of the one sentence; empty: it is shown
	args  string            // besides view FILE; FILE stands for the file
}

const tooMuch = "for the gigabyte of memory that may be used"

var bombs = []bomb{
	{name: "nothing but zeros", write: repeated("", 1<<30, "\x00", ""), says: "too large"},
	{name: "nothing but spaces", write: repeated("", 1<<30, " ", ""), says: "too large"},

	{name: "pprof, empty samples", write: pprofBomb(60_000_000, 2), says: "damaged"},
	{name: "pprof, samples", write: pprofBomb(20_000_000, 2, 2<<3, 1), says: tooMuch},
	{name: "pprof, empty mappings", write: pprofBomb(60_000_000, 3), says: "no recording"},
	{name: "pprof, mappings", write: pprofTable(8_000_000, 3), says: tooMuch},
	{name: "pprof, locations", write: pprofTable(8_000_000, 4), says: tooMuch},
	{name: "pprof, functions", write: pprofTable(8_000_000, 5), says: tooMuch},
	{name: "pprof, strings", write: pprofBomb(60_000_000, 6), says: tooMuch},
	{name: "pprof, types of values", write: pprofBomb(60_000_000, 1), says: "types of values"},
	{name: "pprof, comments", write: pprofLong(13, 100_000_000, 0)},
	{name: "pprof, labels", write: pprofLong(2, 60_000_000, 3<<3|2, 0), says: "damaged"},
	{name: "pprof, values", write: pprofLong(2, 60_000_000, 2<<3, 1), says: "damaged"},
	{name: "pprof, a long stack", write: pprofLong(2, 60_000_000, 1<<3, 1), says: "frames"},
	{name: "pprof, a location of many lines", write: manyLines, says: "frames"},

	{name: "speedscope, fields", write: repeated("{", 30_000_000, `"a":0,`, `"profiles":[],"shared":{}}`), says: "JSON"},
	{name: "speedscope, frames", write: repeated(`{"profiles":[],"shared":{"frames":[`, 30_000_000, "{},", "{}]}}")},
	{name: "speedscope, different frames", write: numbered(`{"profiles":[],"shared":{"frames":[`, 4_000_000, `{"name":"%d"},`, "{}]}}"), says: tooMuch},
	{name: "speedscope, profiles", write: repeated(`{"shared":{"frames":[]},"profiles":[`, 30_000_000, "{},", "{}]}"), says: "type"},
	{name: "speedscope, threads", write: numbered(`{"shared":{"frames":[]},"profiles":[`, 4_000_000, `{"type":"sampled","name":"%d"},`, "{}]}"), says: tooMuch},
	{name: "speedscope, empty samples", write: speedscopeSamples("[]", 10_000_000)},
	{name: "speedscope, samples", write: speedscopeSamples("[0]", 20_000_000), says: tooMuch},
	{name: "speedscope, a long stack", write: repeated(`{"shared":{"frames":[{"name":"a"}]},"profiles":[{"type":"sampled","weights":[1],"samples":[[`, 50_000_000, "0,", "0]]}]}"), says: tooMuch},
	{name: "speedscope, events", write: repeated(`{"shared":{"frames":[{"name":"a"}]},"profiles":[{"type":"evented","events":[`, 5_000_000, `{"type":"O","frame":0,"at":1},`, "{}]}]}"), says: "frames"},
	{name: "speedscope, arrays in arrays", write: repeated(`{"shared":{},"profiles":`, 100_000_000, "[", ""), says: "too large"},

	{name: "folded, frames without names", write: repeated("a", 200_000_000, ";", " 1\n"), says: tooMuch},
	{name: "folded, samples", write: repeated("", 40_000_000, "a 1\n", ""), says: tooMuch},
	{name: "folded, names", write: numbered("", 8_000_000, "%d 1\n", ""), says: tooMuch},
	{name: "folded, stacks", write: numbered("", 6_000_000, "a;b;%d;c;d;e;f;g;h;i;j;k 1\n", ""), says: tooMuch},
	{name: "folded, a long name", write: repeated("", 100_000_000, "a", " 1\n"), says: "name"},
	{name: "folded, a long number", write: repeated("a ", 100_000_000, "1", "\n"), says: "no recording"},
	{name: "folded, a line of spaces", write: repeated("a", 200_000_000, " ", "1")},
}

// TestViewBombs: whatever a file holds, view shows it or says in one sentence why not, and
// uses no more than so much memory.
func TestViewBombs(t *testing.T) {
	for _, b := range bombs {
		t.Run(b.name, func(t *testing.T) { b.set(t) })
	}
}

// set has clrsnap view look at the bomb.
func (b *bomb) set(t *testing.T) {
	t.Helper()
	file := b.file(t)
	args := append([]string{"view", file}, strings.Fields(strings.ReplaceAll(b.args, "FILE", file))...)
	got := measured(t, args...)
	t.Logf("%d kB of file, %d MB of memory, %d bytes of output, %v: %s", sizeOf(t, file)>>10, got.memory/1e6, got.output, got.took.Round(time.Millisecond), got.errors)
	switch {
	case got.memory > viewMemory:
		t.Errorf("%d MB of memory", got.memory/1e6)
	case got.output > viewOutput:
		t.Errorf("%d MB of output", got.output/1e6)
	case got.took >= viewTime:
		t.Errorf("it goes on after %v", viewTime)
	case b.says == "" && got.status != 0:
		t.Errorf("status %d: %s", got.status, got.errors)
	case b.says != "" && (got.status != 1 || !isSentence(got.errors) || !strings.Contains(got.errors, b.says)):
		t.Errorf("status %d, want 1 and a sentence with %q: %s", got.status, b.says, got.errors)
	}
}

func (b *bomb) file(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bomb.gz")
	err := replaceFile(name, func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		out := bufio.NewWriterSize(z, 1<<16)
		b.write(out)
		return errors.Join(out.Flush(), z.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// isSentence reports whether clrsnap has said one thing.
func isSentence(s string) bool {
	return strings.HasPrefix(s, "clrsnap: ") && strings.Count(s, "\n") == 1 && strings.HasSuffix(s, "\n") && len(s) < 1000
}

func sizeOf(t *testing.T, file string) int64 {
	t.Helper()
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// usage is what a run of clrsnap came to.
type usage struct {
	memory, output int64
	status         int
	errors         string
	took           time.Duration
}

// countingWriter counts what is written.
type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

// measured runs clrsnap. It gets no more than thrice the memory that it may use, so that the
// machine outlives what it does wrong. What it reports of its memory includes that of the
// process that started it, which therefore makes files bit by bit.
func measured(t *testing.T, args ...string) usage {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), viewTime)
	defer cancel()
	var output countingWriter
	var errs bytes.Buffer
	c := exec.CommandContext(ctx, "clrsnap", args...)
	c.Stdout, c.Stderr = &output, &errs
	began := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	most := unix.Rlimit{Cur: 3 * viewMemory, Max: 3 * viewMemory}
	if err := unix.Prlimit(c.Process.Pid, unix.RLIMIT_DATA, &most, nil); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // the status says it
	const page = 1 << 10
	rusage := c.ProcessState.SysUsage().(*syscall.Rusage)
	return usage{rusage.Maxrss * page, int64(output), c.ProcessState.ExitCode(), errs.String(), time.Since(began)}
}

// repeated writes a text many times, between two others.
func repeated(before string, n int, s, after string) func(io.Writer) {
	return func(w io.Writer) {
		io.WriteString(w, before)
		repeat(w, n, []byte(s))
		io.WriteString(w, after)
	}
}

// repeat writes n copies of s.
func repeat(w io.Writer, n int, s []byte) {
	at := max(1, min(n, 1<<20/max(len(s), 1)))
	block := bytes.Repeat(s, at)
	for ; n > at; n -= at {
		w.Write(block)
	}
	w.Write(block[:n*len(s)])
}

// message appends a field of a protocol buffer: a number or bytes.
func message[T int | []byte](b []byte, field protowire.Number, v T) []byte {
	switch v := any(v).(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
	case []byte:
		return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
	}
	return b
}

// The numbers of fields are those of pprof's profile.proto.

// pprofHead has one type of values, one function, and one location.
func pprofHead() []byte {
	var b []byte
	for _, s := range []string{"", "cpu", "nanoseconds", "Main"} {
		b = message(b, 6, []byte(s))
	}
	b = message(b, 1, message(message(nil, 1, 1), 2, 2))
	b = message(b, 5, message(message(nil, 1, 1), 2, 3))
	return message(b, 4, message(message(nil, 1, 1), 4, message(nil, 1, 1)))
}

// pprofBomb is a sound small profile with n times a field more.
func pprofBomb(n int, field protowire.Number, content ...byte) func(io.Writer) {
	return repeated(string(pprofHead()), n, string(message(nil, field, content)), "")
}

// pprofTable has n entries in one of its tables.
func pprofTable(n int, field protowire.Number) func(io.Writer) {
	return func(w io.Writer) {
		w.Write(pprofHead())
		for i := range n {
			w.Write(message(nil, field, message(nil, 1, i+10)))
		}
	}
}

// pprofLong has one field with n times some bytes.
func pprofLong(field protowire.Number, n int, content ...byte) func(io.Writer) {
	head := protowire.AppendTag(pprofHead(), field, protowire.BytesType)
	return repeated(string(protowire.AppendVarint(head, uint64(n*len(content)))), n, string(content), "")
}

// manyLines: one location stands for a thousand frames, and is a hundred times in each of a
// million samples.
func manyLines(w io.Writer) {
	w.Write(pprofHead())
	line := message(nil, 4, message(nil, 1, 1))
	w.Write(message(nil, 4, append(message(nil, 1, 2), bytes.Repeat(line, 1000)...)))
	repeat(w, 1_000_000, message(nil, 2, message(message(nil, 1, bytes.Repeat([]byte{2}, 100)), 2, 1)))
}

func speedscopeSamples(sample string, n int) func(io.Writer) {
	return func(w io.Writer) {
		repeated(`{"shared":{"frames":[{"name":"a"}]},"profiles":[{"type":"sampled","samples":[`, n-1, sample+",", sample)(w)
		repeated(`],"weights":[`, n-1, "1,", "1]}]}")(w)
	}
}

// numbered writes n texts that differ by their numbers, between two others.
func numbered(before string, n int, text, after string) func(io.Writer) {
	return func(w io.Writer) {
		io.WriteString(w, before)
		for i := range n {
			fmt.Fprintf(w, text, i)
		}
		io.WriteString(w, after)
	}
}
