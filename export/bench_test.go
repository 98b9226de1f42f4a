package export

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"clrsnap/profile"
)

// million is a recording of a million samples, of 60 threads and 20,000 different
// stacks. Each thread has some hundreds of them. Every other sample has the same stack
// as the one before it of the same thread.
func million() *profile.Recording {
	const samples, threads, stacks = 1 << 20, 60, 20_000
	rng := rand.New(rand.NewPCG(1, 2))
	b := profile.NewBuilder(profile.Limits{Samples: samples + 1})
	var locations []int32
	for i := range 4000 {
		name := fmt.Sprintf("Shop.Orders.Service%d.HandleAsync", i/4)
		f := b.Function(profile.Function{
			Kind: profile.Managed, Method: name, Display: name, Short: name[12:], Signature: "(Shop.Orders.Order, int)",
			Module: "Shop",
		})
		locations = append(locations, b.Location(profile.Location{
			Function: f, Offset: uint64(i % 4 * 16), Tier: "tier-1",
		}))
	}
	var nodes []int32
	for range stacks {
		at := int32(0)
		for depth := range 10 + rng.IntN(30) {
			at = b.Child(at, locations[(depth*80+rng.IntN(1+depth/3))%len(locations)])
		}
		nodes = append(nodes, at)
	}
	r := b.Recording()
	r.Processes = []profile.Process{{PID: 1, Command: "dotnet Shop.dll"}}
	for i := range threads {
		b.Thread(profile.RecordedThread{OSThreadID: 100 + i, ManagedThreadID: i, Name: fmt.Sprint("worker-", i)})
	}
	at := time.Duration(0)
	var last [threads]int32
	for i := range samples {
		at += time.Duration(rng.IntN(1_000_000))
		mode := profile.Mode(i & 1)
		thread := rng.Int32N(threads)
		if rng.IntN(2) == 0 {
			last[thread] = nodes[(int(thread)*stacks/threads+int(600*rng.Float64()*rng.Float64()))%stacks]
		}
		b.Add(profile.Sample{
			At: at, Weight: 10_000_000 + int64(rng.IntN(100_000)), Thread: thread,
			Node: last[thread], Mode: mode, State: profile.State(rng.IntN(2)) * profile.State(mode),
		})
	}
	r = b.Recording()
	r.Duration = at
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 99, Samples: samples / 2}, {Mode: profile.Wall, Rate: 99, Samples: samples / 2},
	}
	return r
}

// countingWriter counts what is written.
type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

// tenth writes a tenth of the time only: more than a trace can hold is refused.
func tenth(write func(io.Writer, *profile.Recording) error) func(io.Writer, *profile.Recording) error {
	return func(w io.Writer, r *profile.Recording) error {
		return write(w, r.Select(profile.Selection{To: r.Duration / 10, Native: true}))
	}
}

var benchmarked = []struct {
	name  string
	write func(io.Writer, *profile.Recording) error
}{
	{"clrsnap", WriteRecording}, {"pprof", Pprof}, {"speedscope", Speedscope}, {"folded", foldedOf(profile.CPU, false)},
	{"trace-of-a-tenth", tenth(ChromeTrace)},
}

// BenchmarkWrite writes a million samples in each format.
func BenchmarkWrite(b *testing.B) {
	r := million()
	for _, f := range benchmarked {
		b.Run(f.name, func(b *testing.B) {
			var size countingWriter
			b.ReportAllocs()
			for b.Loop() {
				size = 0
				if err := f.write(&size, r); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size)/1e6, "MB")
		})
	}
}

// BenchmarkRead reads them again.
func BenchmarkRead(b *testing.B) {
	r := million()
	for _, f := range benchmarked[:len(benchmarked)-1] { // a trace cannot be read
		b.Run(f.name, func(b *testing.B) {
			file := written(b, f.write, r)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ReadRecording(bytes.NewReader(file)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
