package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// The limits of clrsnap view for any file. The time limit is only there to end an endless run.
const (
	viewMemory = 1_000_000_000 // bytes
	viewOutput = 1 << 30
	viewTime   = 5 * time.Minute
)

// bomb is a file that needs far more memory or time than its size suggests. To add a bomb, add a line to bombs.
type bomb struct {
	name  string
	write func(w io.Writer) // what gzip packs
	says  string            // part of the one sentence; empty: the file is shown
	args  string            // besides view FILE; FILE stands for the file
	quick bool              // takes half a second at most: for check
	long  bool              // takes seconds, and is like another bomb: for proof
}

const tooMuch = "it would take more than a gigabyte of memory"

var bombs = []bomb{
	{name: "nothing but zeros", write: repeated("", 1<<30, "\x00", ""), says: "too large"},
	{name: "nothing but spaces", long: true, write: repeated("", 1<<30, " ", ""), says: "too large"},

	{name: "pprof, empty samples", long: true, write: pprofBomb(60_000_000, 2), says: "damaged"},
	{name: "pprof, samples", write: pprofBomb(20_000_000, 2, 2<<3, 1), says: tooMuch},
	{name: "pprof, empty mappings", quick: true, write: pprofBomb(60_000_000, 3), says: "not a recording"},
	{name: "pprof, mappings", long: true, write: pprofTable(8_000_000, 3), says: tooMuch},
	{name: "pprof, locations", long: true, write: pprofTable(8_000_000, 4), says: tooMuch},
	{name: "pprof, functions", long: true, write: pprofTable(8_000_000, 5), says: tooMuch},
	{name: "pprof, strings", write: pprofBomb(60_000_000, 6), says: tooMuch},
	{name: "pprof, sample types", quick: true, write: pprofBomb(60_000_000, 1), says: "sample types"},
	{name: "pprof, comments", write: pprofLong(13, 100_000_000, 0)},
	{name: "pprof, labels", write: pprofLong(2, 60_000_000, 3<<3|2, 0), says: "damaged"},
	{name: "pprof, values", write: pprofLong(2, 60_000_000, 2<<3, 1), says: "damaged"},
	{name: "pprof, a long stack", quick: true, write: pprofLong(2, 60_000_000, 1<<3, 1), says: "frames"},
	{name: "pprof, a location of many lines", long: true, write: manyLines, says: "frames"},

	{
		name: "speedscope, fields", write: repeated("{", 30_000_000, `"a":0,`, `"profiles":[],"shared":{}}`),
		says: "JSON",
	},
	{
		name: "speedscope, frames", long: true,
		write: repeated(`{"profiles":[],"shared":{"frames":[`, 30_000_000, "{},", "{}]}}"),
	},
	{
		name: "speedscope, different frames", write: numbered(`{"profiles":[],"shared":{"frames":[`, 4_000_000,
			`{"name":"%d"},`, "{}]}}"), says: tooMuch,
	},
	{
		name: "speedscope, profiles", write: repeated(`{"shared":{"frames":[]},"profiles":[`, 30_000_000, "{},",
			"{}]}"), says: "type",
	},
	{
		name: "speedscope, threads", long: true, write: numbered(`{"shared":{"frames":[]},"profiles":[`, 4_000_000,
			`{"type":"sampled","name":"%d"},`, "{}]}"), says: tooMuch,
	},
	{name: "speedscope, empty samples", write: speedscopeSamples("[]", 10_000_000)},
	{name: "speedscope, samples", long: true, write: speedscopeSamples("[0]", 20_000_000), says: tooMuch},
	{
		name: "speedscope, a long stack", long: true,
		write: repeated(`{"shared":{"frames":[{"name":"a"}]},"profiles":[{"type":"sampled","weights":[1],`+
			`"samples":[[`, 50_000_000, "0,", "0]]}]}"), says: tooMuch,
	},
	{
		name: "speedscope, events", long: true,
		write: repeated(`{"shared":{"frames":[{"name":"a"}]},"profiles":[{"type":"evented","events":[`, 5_000_000,
			`{"type":"O","frame":0,"at":1},`, "{}]}]}"), says: "frames",
	},
	{
		name: "speedscope, arrays in arrays", write: repeated(`{"shared":{},"profiles":`, 100_000_000, "[", ""),
		says: "too large",
	},

	{
		name: "folded, frames without names", long: true, write: repeated("a", 200_000_000, ";", " 1\n"),
		says: tooMuch,
	},
	{name: "folded, samples", write: repeated("", 40_000_000, "a 1\n", ""), says: tooMuch},
	{name: "folded, names", write: numbered("", 8_000_000, "%d 1\n", ""), says: tooMuch},
	{
		name: "folded, stacks", long: true,
		write: numbered("", 6_000_000, "a;b;%d;c;d;e;f;g;h;i;j;k 1\n", ""), says: tooMuch,
	},
	{name: "folded, a long name", write: repeated("", 100_000_000, "a", " 1\n"), says: "name"},
	{name: "folded, a long number", write: repeated("a ", 100_000_000, "1", "\n"), says: "not a recording"},
	{name: "folded, a line of spaces", write: repeated("a", 200_000_000, " ", "1")},

	{name: "ours, samples", long: true, write: (&tables{samples: 20_000_000}).write, says: tooMuch},
	{name: "ours, stacks", long: true, write: (&tables{nodes: 30_000_000}).write, says: tooMuch},
	{name: "ours, locations", long: true, write: (&tables{locations: 30_000_000}).write, says: tooMuch},
	{name: "ours, functions", long: true, write: (&tables{functions: 30_000_000}).write, says: tooMuch},
	{name: "ours, strings", write: (&tables{strings: 100_000_000}).write, says: tooMuch},
	{
		name: "ours, threads", write: (&tables{more: `"threads":[`, element: "{},", elements: 30_000_000}).write,
		says: tooMuch,
	},
	{
		name: "ours, processes", write: (&tables{more: `"processes":[`, element: "{},", elements: 30_000_000}).write,
		says: tooMuch,
	},
	{
		name: "ours, notes", long: true,
		write: (&tables{more: `"notes":[`, element: `"",`, elements: 60_000_000}).write, says: tooMuch,
	},
	{
		name: "ours, a long note", quick: true,
		write: (&tables{more: `"notes":["`, element: `a`, elements: 100_000_000}).write, says: "too large",
	},
	{name: "ours, unknown fields", write: (&tables{more: `"x":[`, element: `0,`, elements: 300_000_000}).write},
	{
		name: "ours, functions of one long name", quick: true,
		write: (&tables{functions: 100_000, long: 4_000_000}).write, says: tooMuch,
	},
	{
		name:  "ours, places in one function of a long name",
		write: (&tables{functions: 2, locations: 1_000_000, nodes: 1_000_000, samples: 10, long: 4_000_000}).write,
	},
	{
		name:  "ours, frames of a long name, in a picture",
		write: (&tables{nodes: 1000, depth: 1000, samples: 1000, long: 4_000_000}).write, args: "-f svg",
		says: "gigabyte",
	},
	{
		name: "ours, frames of a long name, folded", quick: true,
		write: (&tables{nodes: 1000, depth: 1000, samples: 1000, long: 4_000_000}).write, args: "-f folded",
		says: "gigabyte",
	},
	{
		name: "ours, frames of a long name, as a trace", long: true,
		write: (&tables{nodes: 1000, depth: 1000, samples: 1000, long: 4_000_000}).write, args: "-f trace",
		says: "gigabyte",
	},
	{
		name: "ours, functions of long names, as JSON",
		write: (&tables{functions: 500, names: 500, locations: 500, nodes: 500, depth: 500, samples: 7,
			long: 200_000, modes: 7}).write, args: "--json", says: "gigabyte",
	},
	{
		name:  "ours, events in events",
		write: (&tables{kind: 3, nodes: 2_000_000, depth: 262_144, samples: 2_000_000}).write,
	},
	{name: "ours, each frame of deep stacks, folded", write: deepStacks, args: "-f folded", says: "gigabyte"},
	{
		name: "ours, each frame of deep stacks, pprof", long: true, write: deepStacks, args: "-f pprof",
		says: "gigabyte",
	},
	{
		name: "ours, each frame of deep stacks, speedscope", long: true, write: deepStacks, args: "-f speedscope",
		says: "gigabyte",
	},
	{
		name: "ours, each frame of deep stacks, as a trace", long: true, write: deepStacks, args: "-f trace",
		says: "gigabyte",
	},
	{name: "ours, each frame of deep stacks, in a picture", long: true, write: deepStacks, args: "-f svg"},
	{name: "ours, each frame of deep stacks, as a page", write: deepStacks, args: "-f html"},

	{name: "ours, as many samples as there may be", write: mostSamples, args: "--diff FILE"},
	{name: "ours, as many samples as there may be, folded", long: true, write: mostSamples, args: "-f folded"},
	{name: "ours, as many samples as there may be, pprof", long: true, write: mostSamples, args: "-f pprof"},
	{name: "ours, as many samples as there may be, speedscope", long: true, write: mostSamples, args: "-f speedscope"},
	{
		name: "ours, as many samples as there may be, as a trace", long: true, write: mostSamples, args: "-f trace",
		says: "million events",
	},
	{name: "ours, as many stacks as there may be", long: true, write: mostNodes, args: "--diff FILE"},
	{name: "ours, as many stacks as there may be, in a picture", write: mostNodes, args: "-f svg"},
	{name: "ours, as many stacks as there may be, pprof", long: true, write: mostNodes, args: "-f pprof"},
	{name: "ours, as many stacks as there may be, folded", long: true, write: mostNodes, args: "-f folded --by-thread"},
	{name: "ours, as many functions as there may be", long: true, write: mostFunctions, args: "--by-thread"},
	{
		name: "ours, as many functions as there may be, compared", long: true, write: mostFunctions,
		args: "--json --diff FILE", says: "gigabyte",
	},
	{name: "ours, as many functions as there may be, in a picture", long: true, write: mostFunctions, args: "-f svg"},
	{name: "ours, deep stacks of many functions, callers", write: deepFunctions, args: "--callers 5 --top 0"},
	{name: "ours, deep stacks of many functions, callees", write: deepFunctions, args: "--callees .* --top 0 --json"},
	{name: "ours, as many stacks as there may be, callees", long: true, write: mostNodes, args: "--callees .*"},
	{
		name: "ours, as many functions as there may be, a path", long: true, write: mostFunctions,
		args: "--path --top 0 --json",
	},
	{name: "ours, as many functions as there may be, callers", long: true, write: mostFunctions, args: "--callers 99"},
	{name: "ours, as many samples as there may be, a path", long: true, write: mostSamples, args: "--path --idle"},
	{name: "ours, as many threads as there may be", write: mostThreads},
	{name: "ours, as many threads as there may be, as JSON", long: true, write: mostThreads, args: "--json"},
	{name: "ours, as many threads as there may be, speedscope", long: true, write: mostThreads, args: "-f speedscope"},
	{name: "ours, as many threads as there may be, as a trace", long: true, write: mostThreads, args: "-f trace"},

	{name: "page, samples", write: htmlPage((&tables{samples: 20_000_000}).write), says: tooMuch},
}

// The recordings that just fit into the budget: showing these recordings takes the most.
func mostSamples(w io.Writer) { (&tables{samples: 5_500_000, nodes: 3000, depth: 10}).write(w) }
func mostNodes(w io.Writer) {
	(&tables{locations: 100_003, nodes: 3_000_000, depth: 100, samples: 70_000, incomplete: 35_000}).write(w)
}
func mostFunctions(w io.Writer) {
	(&tables{functions: 430_000, names: 430_000, locations: 430_000, nodes: 430_000, depth: 1000, samples: 430 * 7,
		modes: 7}).write(w)
}
func deepFunctions(w io.Writer) {
	(&tables{functions: 100_000, names: 100_000, locations: 100_000, nodes: 1_000_000, depth: 10_000,
		samples: 1_000_000}).write(w)
}
func mostThreads(w io.Writer) { (&tables{threads: 1 << 20, samples: 1 << 20, nodes: 10}).write(w) }

// deepStacks is a recording with a sample in each of a million frames.
func deepStacks(w io.Writer) {
	(&tables{nodes: 1_000_000, depth: 262_144, samples: 1_000_000}).write(w)
}

// TestViewBombs: whatever a file contains, view shows the file or says in one sentence why not, and uses no more than a
// bounded amount of memory.
func TestViewBombs(t *testing.T) {
	layer.Proof(t)
	setEach(t, func(b *bomb) bool { return !b.long || layer.Size(false, true) })
}

// TestViewBombsQuick is a part of TestViewBombs.
func TestViewBombsQuick(t *testing.T) { setEach(t, func(b *bomb) bool { return b.quick }) }

func setEach(t *testing.T, wanted func(*bomb) bool) {
	for i := range bombs {
		if b := &bombs[i]; wanted(b) {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				b.set(t)
			})
		}
	}
}

// hour is a recording of an hour of a large service, as large as profile.Limits allow.
func hour(w io.Writer) {
	(&tables{functions: 65_536, names: 65_536, long: 120, locations: 300_007, nodes: 1 << 20, depth: 40,
		samples: 1 << 20, threads: 5000, modes: 2}).write(w)
}

// TestViewHour: a large honest recording is written in every format but folded stacks, which would be two gigabytes.
// The formats that can be read back are read.
func TestViewHour(t *testing.T) {
	layer.Proof(t)
	extensions := layer.Size([]string{".svg"},
		[]string{".clrsnap", ".svg", ".html", ".pb.gz", ".speedscope.json"})
	file := (&bomb{write: hour}).file(t)
	for _, extension := range extensions {
		t.Run(extension[1:], func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "hour"+extension)
			got := measured(t, "view", file, "-o", out)
			if got.status != 0 || got.memory > viewMemory {
				t.Fatalf("written with status %d and %d MB of memory: %s", got.status, got.memory/1e6, got.errors)
			}
			t.Logf("written: %d MB of memory, %v, %d MB",
				got.memory/1e6, got.took.Round(time.Millisecond), sizeOf(t, out)/1e6)
			if extension == ".svg" {
				return
			}
			if got = measured(t, "view", out, "--diff", file); got.status != 0 || got.memory > viewMemory {
				t.Fatalf("read with status %d and %d MB of memory: %s", got.status, got.memory/1e6, got.errors)
			}
			t.Logf("compared: %d MB of memory, %v", got.memory/1e6, got.took.Round(time.Millisecond))
		})
	}
}

// set runs clrsnap view on the bomb.
func (b *bomb) set(t *testing.T) {
	t.Helper()
	file := b.file(t)
	args := append([]string{"view", file}, strings.Fields(strings.ReplaceAll(b.args, "FILE", file))...)
	got := measured(t, args...)
	t.Logf("%d kB of file, %d MB of memory, %d bytes of output, %v: %s",
		sizeOf(t, file)>>10, got.memory/1e6, got.output, got.took.Round(time.Millisecond), got.errors)
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

// isSentence reports whether clrsnap has printed one sentence.
func isSentence(s string) bool {
	return strings.HasPrefix(s, "clrsnap: ") && strings.Count(s, "\n") == 1 && strings.HasSuffix(s, "\n") &&
		len(s) < 1000
}

func sizeOf(t *testing.T, file string) int64 {
	t.Helper()
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// usage is the outcome of a run of clrsnap.
type usage struct {
	memory, output int64
	status         int
	errors         string
	took           time.Duration
}

// countingWriter counts the written bytes.
type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

// measured runs clrsnap. A limit of three times the allowed memory protects the machine. clrsnap's peak memory includes
// the memory of the process that started clrsnap, so this process writes files as a stream.
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
	_ = c.Wait() // the status has the outcome
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

// The numbers of fields are the numbers in pprof's profile.proto.

// pprofHead has a single sample type, function, and location.
func pprofHead() []byte {
	var b []byte
	for _, s := range []string{"", "cpu", "nanoseconds", "Main"} {
		b = message(b, 6, []byte(s))
	}
	b = message(b, 1, message(message(nil, 1, 1), 2, 2))
	b = message(b, 5, message(message(nil, 1, 1), 2, 3))
	return message(b, 4, message(message(nil, 1, 1), 4, message(nil, 1, 1)))
}

// pprofBomb is a valid small profile with n further copies of a field.
func pprofBomb(n int, field protowire.Number, content ...byte) func(io.Writer) {
	return repeated(string(pprofHead()), n, string(message(nil, field, content)), "")
}

// pprofTable has n entries in one table.
func pprofTable(n int, field protowire.Number) func(io.Writer) {
	return func(w io.Writer) {
		w.Write(pprofHead())
		for i := range n {
			w.Write(message(nil, field, message(nil, 1, i+10)))
		}
	}
}

// pprofLong has one field with n copies of some bytes.
func pprofLong(field protowire.Number, n int, content ...byte) func(io.Writer) {
	head := protowire.AppendTag(pprofHead(), field, protowire.BytesType)
	return repeated(string(protowire.AppendVarint(head, uint64(n*len(content)))), n, string(content), "")
}

// manyLines has one location for a thousand frames, a hundred times in each of a million samples.
func manyLines(w io.Writer) {
	w.Write(pprofHead())
	line := message(nil, 4, message(nil, 1, 1))
	w.Write(message(nil, 4, append(message(nil, 1, 2), bytes.Repeat(line, 1000)...)))
	repeat(w, 1_000_000, message(nil, 2, message(message(nil, 1, bytes.Repeat([]byte{2}, 100)), 2, 1)))
}

func speedscopeSamples(sample string, n int) func(io.Writer) {
	return func(w io.Writer) {
		repeated(`{"shared":{"frames":[{"name":"a"}]},"profiles":[{"type":"sampled","samples":[`, n-1, sample+",",
			sample)(w)
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

// tables is a file of clrsnap's own format, with the given number of rows in each table. Each node is the child of the
// node before, up to the depth, and has the next location.
type tables struct {
	strings, functions, locations, nodes, samples, threads int

	kind, long, names        int // of functions: how long names are, and how many; 0: one
	depth, modes, incomplete int // of stacks, and of samples
	more, element            string
	elements                 int
}

func (x *tables) write(w io.Writer) {
	one := func(n int) int { return max(n, 1) }
	cycle := func(most int) func(int) int { return func(i int) int { return i % most } }
	zero := func(int) int { return 0 }
	f, l, n, s := one(x.functions), one(x.locations), one(x.nodes), x.samples
	io.WriteString(w, `{"format":"clrsnap recording","version":2,"creator":"",`+
		`"start":"2026-01-01T00:00:00Z","duration":1,"processes":[{}],"threads":[`)
	repeated("", one(x.threads)-1, "{},", `{}],"strings":["","`)(w)
	repeated("", x.long, "a", `"`)(w)
	repeated("", x.strings, `,""`, "")(w)
	numbered("", x.names, fmt.Sprintf(`,"%%0%dd"`, x.long), `],"functions":{`)(w)
	column(w, `"kind"`, f, func(int) int { return x.kind })
	for _, name := range []string{`,"method"`, `,"display"`, `,"short"`, `,"signature"`, `,"module"`} {
		column(w, name, f, func(i int) int {
			if x.names > 0 {
				return 2 + x.strings + i%x.names
			}
			return min(x.long, 1)
		})
	}
	io.WriteString(w, `},"locations":{`)
	column(w, `"function"`, l, cycle(f))
	column(w, `,"offset"`, l, func(i int) int { return i })
	column(w, `,"tier"`, l, zero)
	io.WriteString(w, `},"nodes":{`)
	column(w, `"parent"`, n, func(i int) int {
		if i > 0 && i%one(x.depth) == 0 {
			return 0
		}
		return i - 1 // the root has -1
	})
	column(w, `,"location"`, n, func(i int) int {
		if i == 0 {
			return -1
		}
		return i % l
	})
	io.WriteString(w, `},"samples":{`)
	stride := one(x.depth)
	if s >= n {
		stride = 1
	}
	column(w, `"node"`, s, func(i int) int { return n - 1 - i*stride%n })
	column(w, `,"weight"`, s, func(int) int { return 1000 })
	column(w, `,"count"`, s, func(int) int { return 1 })
	column(w, `,"mode"`, s, func(i int) int { return i / one(n/stride) % one(x.modes) })
	column(w, `,"thread"`, s, cycle(one(x.threads)))
	for _, name := range []string{`,"at"`, `,"events"`, `,"state"`} {
		column(w, name, s, zero)
	}
	column(w, `,"incomplete"`, min(x.incomplete, s), func(i int) int { return i })
	io.WriteString(w, `},`)
	if x.more != "" {
		repeated(x.more, x.elements, x.element, `{}],`)(w)
	}
	io.WriteString(w, `"modes":[],"cost":{},"notes":[]}`)
}

func column(w io.Writer, name string, n int, at func(int) int) {
	io.WriteString(w, name+":[")
	var buf []byte
	for i := range n {
		buf = strconv.AppendInt(append(buf[:0], ','), int64(at(i)), 10)
		w.Write(buf[1-min(i, 1):])
	}
	io.WriteString(w, "]")
}

// htmlPage is a page of clrsnap with a recording.
func htmlPage(write func(io.Writer)) func(io.Writer) {
	return func(w io.Writer) {
		io.WriteString(w, `<!doctype html><script type="application/octet-stream" id="recording">`)
		encoder := base64.NewEncoder(base64.StdEncoding, w)
		z := gzip.NewWriter(encoder)
		out := bufio.NewWriter(z)
		write(out)
		out.Flush()
		z.Close()
		encoder.Close()
		io.WriteString(w, "</script>")
	}
}
