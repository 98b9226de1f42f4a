package gather

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"clrsnap"
	"clrsnap/internal/cgroup"
	"clrsnap/internal/procfs"
	"clrsnap/internal/session"
)

const (
	// Two looks that belong together are so far apart. The gap is long for a program, and short for a person.
	lookGap = 250 * time.Millisecond
	// answerWithin is how long the runtime may take to load the agent, at most the planned time of the recording.
	// Loading takes some 30 ms.
	answerWithin = 3 * time.Second
	// endsWithin is how long a recording may take to end: mostly the time in which the agent leaves.
	endsWithin = 2 * time.Second
	// leastSampling is the shortest recording that the judges use.
	leastSampling = Enough
	// sampleRate is in samples a second. The rate is not a multiple of usual periods in programs.
	sampleRate = 97
)

// Options say how to look: see why.Options.
type Options struct {
	Process  clrsnap.Options
	For      time.Duration
	NoAgent  bool
	Progress func(doing string, done float64)
}

// Gatherer gathers the evidence of one process.
type Gatherer struct {
	Evidence
	o     *Options
	p     *clrsnap.Process
	s     *session.Process
	dir   procfs.Dir
	group *cgroup.Reader
	start time.Time

	suspended func(*Evidence) bool

	lastLooks   time.Duration // what the last looks will take in all, if they take long
	heapMissing bool          // the heap cannot be read
	stops       atomic.Int64  // of threads, for the recording
}

// Begin opens a process to be looked at. suspended reports whether the runtime waits for a thread, by the evidence.
func Begin(pid int, o *Options, suspended func(*Evidence) bool) (*Gatherer, error) {
	start := time.Now()
	how := o.Process
	how.Permits, how.PackStacks, how.Inlined = clrsnap.PermitsSoon, false, true
	p, err := clrsnap.Open(context.Background(), pid, how)
	if err != nil {
		return nil, err
	}
	s := root.Session(p)
	g := &Gatherer{suspended: suspended, o: o, p: p, s: s, dir: s.Live.Dir(), start: start}
	g.group = cgroup.NewReader(g.dir)
	g.Evidence = Evidence{Process: p.Info(), Began: g.start, CPUs: runtime.NumCPU()}
	return g, nil
}

// Close closes the process.
func (g *Gatherer) Close() { g.p.Close() }

// progress reports how far g has come.
func (g *Gatherer) progress(doing string) {
	g.o.Progress(doing, min(1, time.Since(g.start).Seconds()/g.o.For.Seconds()))
}

// Miss notes something that could not be looked at.
func (g *Gatherer) Miss(format string, args ...any) {
	g.Missing = append(g.Missing, fmt.Sprintf(format, args...))
}

func (g *Gatherer) missOnce(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, m := range g.Missing {
		if m == text {
			return
		}
	}
	g.Missing = append(g.Missing, text)
}
