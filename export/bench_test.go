package export

import (
	"bytes"
	"io"
	"testing"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
)

// countingWriter counts the written bytes.
type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

// tenth writes only a tenth of the time: a trace cannot hold more.
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
	r := profiletest.Million()
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

// BenchmarkRead reads the samples again.
func BenchmarkRead(b *testing.B) {
	r := profiletest.Million()
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
