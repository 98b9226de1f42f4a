package cost

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/observer"
)

// A course is what a recording of 4 s takes from a program between the recording's start and end.
type course struct {
	way *way

	lost [len(courseParts)][]float64 // per cent of the throughput without a recording, in each part
	own  [len(courseParts)][]float64 // per cent of a CPU; not at the end: the recorder has ended before the question
}

// coursePart is a part of the course, counted from the start of the command, or from the signal to end. Each part
// is long enough to ask the program several times.
type coursePart struct {
	name     string
	ends     bool // from and to are after the signal
	from, to time.Duration
}

var courseParts = [...]coursePart{
	{"0 to 0.5 s", false, 0, time.Second / 2},
	{"0.5 to 1 s", false, time.Second / 2, time.Second},
	{"1 to 2 s", false, time.Second, 2 * time.Second},
	{"2 to 4 s", false, 2 * time.Second, courseTime},
	{"end: 0 to 0.5 s", true, 0, time.Second / 2},
}

// The times of a course, and how often the program is asked.
const (
	courseAlone = 3 * time.Second / 2 // before a recording, and after a recording: the comparison
	courseTime  = 4 * time.Second
	courseEnd   = time.Second // from the signal until the recorder has ended and the program has noticed
	courseAsk   = 50 * time.Millisecond
)

// BenchmarkRecordCourse measures when a recording costs a web server how much: at its start, in its first seconds,
// later, and at its end. The figures include everything, also the kernel's part. The speed of a virtual machine changes
// meanwhile, so many courses are needed: about 80 for an error of 1.5 %.
func BenchmarkRecordCourse(b *testing.B) {
	exe := livetest.Command(b)
	a, s, head := startWeb(b)
	var courses []*course
	var ways []*way
	for _, w := range recordWays(b, exe) {
		if !w.floor {
			courses, ways = append(courses, &course{way: w}), append(ways, w)
		}
	}
	for i := 0; b.Loop(); i++ {
		for j := range courses {
			courses[(i+j)%len(courses)].measure(b, s)
		}
	}
	s.stopAsking(b)
	t := newColumns("recorded by\ttimes" + courseHead())
	for _, c := range courses {
		t.row("%s", c.row())
	}
	fmt.Printf("\n\n%s\n%s .NET %s. Each recording lasts %v; its throughput is compared with those of %v before and "+
		"after. Values are means ± standard error. A CPU is 100 %%.\n\n%s\n",
		machine(), head, runtimeOf(ways), courseTime, courseAlone, t)
	livetest.EndsWell(b, a)
}

func courseHead() (head string) {
	for _, p := range courseParts {
		if head += "\t" + p.name + ": lost %"; !p.ends {
			head += "\town CPU %"
		}
	}
	return head + "\tms of work that the start takes\tthe end"
}

func (c *course) row() string {
	row := fmt.Sprintf("%s\t%d", c.way.name, len(c.lost[0]))
	for i, p := range courseParts {
		if row += "\t" + spread(c.lost[i]); !p.ends {
			row += "\t" + spread(c.own[i])
		}
	}
	return row + "\t" + spread(c.work(0)) + "\t" + spread(c.work(len(courseParts)-1))
}

// work is how many milliseconds of the program's work each recording took in a part.
func (c *course) work(part int) (ms []float64) {
	p := courseParts[part]
	for _, lost := range c.lost[part] {
		ms = append(ms, lost/100*milliseconds(p.to-p.from))
	}
	return ms
}

// asked are counts at different times.
type asked struct {
	at    []time.Duration
	units []float64
	own   []float64 // seconds of CPU time of the recorder
}

// measure takes the figures of one recording.
func (c *course) measure(b *testing.B, s *subject) {
	b.Helper()
	s.keepAsking(b)
	s.awaitQuiet(b)
	var seen asked
	var o *observer.Observer // the running recorder
	own := 0.
	ask := func(until time.Duration) time.Duration {
		for {
			units, at := s.ask()
			if o != nil {
				own = o.CPU(b).Seconds()
			}
			seen.at, seen.own = append(seen.at, at), append(seen.own, own)
			seen.units = append(seen.units, float64(units))
			if at >= until {
				return at
			}
			time.Sleep(courseAsk)
		}
	}
	_, began := s.ask()
	began = ask(began + courseAlone)
	if c.way.start != nil {
		o = c.way.start(b, s.pid) // returns when the recorder has begun
	}
	ended := ask(began + courseTime)
	end := c.ender(o)
	o = nil
	ask(ended + courseEnd + courseAlone)
	if err := <-end; err != nil {
		b.Fatalf("%s: %v", c.way.name, err)
	}
	c.add(&seen, began, ended)
}

// ender ends a recorder and reports when the recorder has ended; nil: there is no recorder.
func (c *course) ender(o *observer.Observer) <-chan error {
	done := make(chan error, 1)
	go func() {
		defer close(done)
		if o == nil {
			return
		}
		q, err := o.End()
		if err == nil {
			c.way.seen.Add(q)
		}
		done <- err
	}()
	return done
}

// add counts one recording.
func (c *course) add(seen *asked, began, ended time.Duration) {
	after := ended + courseEnd
	alone := (seen.rate(seen.units, began-courseAlone, began) + seen.rate(seen.units, after, after+courseAlone)) / 2
	for i, p := range courseParts {
		from := began
		if p.ends {
			from = ended
		}
		c.lost[i] = append(c.lost[i], 100*(1-seen.rate(seen.units, from+p.from, from+p.to)/alone))
		if !p.ends {
			c.own[i] = append(c.own[i], 100*seen.rate(seen.own, from+p.from, from+p.to))
		}
	}
}

// rate is the growth of a count per second between two times.
func (s *asked) rate(count []float64, from, to time.Duration) float64 {
	return (s.of(count, to) - s.of(count, from)) / (to - from).Seconds()
}

// of is a count at a time, interpolated between two answers.
func (s *asked) of(count []float64, at time.Duration) float64 {
	i, _ := slices.BinarySearch(s.at, at)
	switch i {
	case 0:
		return count[0]
	case len(s.at):
		return count[i-1]
	}
	part := float64(at-s.at[i-1]) / float64(s.at[i]-s.at[i-1])
	return count[i-1] + part*(count[i]-count[i-1])
}

// TestCourse: a program that does 100 units a second, half as much at the start and nothing for a tenth of a second at
// the end.
func TestCourse(t *testing.T) {
	const began, ended = 10 * time.Second, 10*time.Second + courseTime
	var seen asked
	units := 0.
	for at := began - courseAlone; at <= ended+courseEnd+courseAlone; at += 10 * time.Millisecond {
		seen.at, seen.units = append(seen.at, at), append(seen.units, units)
		seen.own = append(seen.own, max(0, (at-began).Seconds()/10))
		switch {
		case at >= ended && at < ended+100*time.Millisecond:
		case at >= began && at < began+500*time.Millisecond:
			units += .5
		default:
			units++
		}
	}
	c := new(course)
	c.add(&seen, began, ended)
	for i, want := range []float64{50, 0, 0, 0, 20} {
		if got := c.lost[i][0]; math.Abs(got-want) > 1e-6 {
			t.Errorf("%s: %g %% lost, want %g", courseParts[i].name, got, want)
		}
		if i < 4 && math.Abs(c.own[i][0]-10) > 1e-6 {
			t.Errorf("%s: %g %% of a CPU", courseParts[i].name, c.own[i][0])
		}
	}
	start, end := c.work(0)[0], c.work(len(courseParts) - 1)[0]
	if math.Abs(start-250) > 1e-6 || math.Abs(end-100) > 1e-6 {
		t.Errorf("%g and %g ms of work, want 250 and 100", start, end)
	}
}
