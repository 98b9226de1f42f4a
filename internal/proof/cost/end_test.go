package cost

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/export"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
)

// counter counts written bytes.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// BenchmarkRecordEnd measures what lines and inlined methods cost at the end of a recording of a web server, and the
// size of the file with lines and inlined methods. Aim: 500 ms.
func BenchmarkRecordEnd(b *testing.B) {
	builds := testenv.AspNetRuntimes(b)
	a := testenv.Start(b, "web", testenv.Options{Runtime: builds[len(builds)-1].Runtime})
	ctx, end := context.WithCancel(context.Background())
	defer end()
	url := a.Ask("url")[0] + "/orders/17"
	for range 2 {
		go func() {
			for ctx.Err() == nil {
				r, err := http.Get(url)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		}()
	}
	for _, c := range []struct {
		name string
		o    clrsnap.Options
	}{
		{"nothing", clrsnap.Options{}}, {"lines", clrsnap.Options{Lines: true}},
		{"lines,inlined", clrsnap.Options{Lines: true, Inlined: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			const lasts = 2 * time.Second
			var after []float64
			var size counter
			inlined, sites := 0, 0
			for b.Loop() {
				p := livetest.Open(b, a, c.o)
				begun := time.Now()
				r := livetest.Recorded(b, p, record.Options{
					Modes: []profile.Mode{profile.CPU, profile.Wall}, Duration: lasts, Rate: 199,
				})
				after = append(after, milliseconds(time.Since(begun)-lasts))
				p.Close()
				size, inlined, sites = 0, 0, len(r.Sites)
				if err := export.WriteRecording(&size, r); err != nil {
					b.Fatal(err)
				}
				for i := range r.Nodes[1:] {
					if r.Locations[r.Nodes[1+i].Location].Inlined {
						inlined++
					}
				}
			}
			b.ReportMetric(slices.Min(after), "ms-after")
			b.ReportMetric(float64(size), "file-bytes")
			b.ReportMetric(float64(inlined), "inlined")
			b.ReportMetric(float64(sites), "sites")
		})
	}
	end()
	livetest.EndsWell(b, a)
}
