package singlestep

import (
	"flag"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

var (
	reportFile = flag.String("report", "", "write the oracle's report to this `file`")
	total      = flag.Int("steps", layer.Size(300_000, 10_200_000), "how many instructions the oracle executes in all")
	collected  = flag.String("collect", "", "collect moments into this corpus `file`; what it holds already is kept")
	corpora    = flag.String("corpora", "", "write what is not equal into corpora in this `folder`")
)

// workload is a program and its stepped threads.
type workload struct {
	name    string
	app     string
	args    []string
	env     []string
	threads []string
	birth   bool
}

// steps is a workload of the program steps. Garbage is collected now and then:
// each time the stepped thread executes some thousand instructions to stop for the
// collection.
func steps(work string, env ...string) workload {
	return collecting(work, 400*time.Millisecond, env...)
}

func collecting(work string, pause time.Duration, env ...string) workload {
	args := []string{"--work", work, "--gc", strconv.Itoa(int(pause.Milliseconds()))}
	return workload{name: work, app: "steps", args: args, env: env, threads: []string{"stepped"}}
}

func scenario(worker string) workload {
	return workload{name: worker, app: "scenarios",
		args: []string{"--no-blocked", "--busy", "3000", "--workers", worker}, threads: []string{worker}}
}

func workloads() []workload {
	optimized, jit := "DOTNET_TieredCompilation=0", "DOTNET_ReadyToRun=0"
	all := []workload{
		steps("exceptions"), steps("deep-unwind", optimized), steps("faults"), steps("async-throw", jit),
		steps("dispatch"), steps("delegates"), steps("generics", jit), steps("statics"), steps("allocations"),
		steps("tail-calls", optimized), steps("native"), collecting("hijack", time.Millisecond, optimized),
		collecting("hijack", 20*time.Millisecond, optimized), steps("contention"), steps("threads"),
		steps("reflection"), steps("recursion"), collecting("recursion", 50*time.Millisecond, optimized),
	}
	for _, w := range []string{
		"osr-loop", "simd-loop", "fib", "throw-catch", "faults", "tier-up", "dispatch", "strings", "linq-generics",
		"dynamic-churn", "alc-churn", "ping-pong", "gc-collect", "alloc", "write-barrier", "casts", "tail-calls",
		"pinvoke-storm", "qsort-storm", "async-storm",
	} {
		all = append(all, scenario(w))
	}
	birth := steps("threads")
	birth.name, birth.birth = "from a thread's birth", true
	return append(all, birth)
}

// TestEveryInstruction is oracle 2: after each instruction of a thread, a walk
// must give exactly the stack made by calls and returns.
func TestEveryInstruction(t *testing.T) {
	layer.Proof(t)
	if *corpora != "" {
		if err := os.MkdirAll(*corpora, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Run(testenv.DefaultRuntime, func(t *testing.T) {
		rep := stepThrough(t, testenv.DefaultRuntime, *total, collect(t))
		if *reportFile != "" {
			if err := os.WriteFile(*reportFile, []byte(rep.String()), 0o644); err != nil {
				t.Error(err)
			}
		}
	})
	// .NET 9 has other funclets, other assembly, and Frames identified by their virtual tables.
	for _, runtime := range []string{testenv.NewestRuntime, "net9"} {
		t.Run(runtime, func(t *testing.T) {
			testenv.Kit(t).Need(t, runtime)
			stepThrough(t, runtime, *total/4, nil)
		})
	}
}

// stepThrough executes so many instructions of all workloads on a runtime.
func stepThrough(t *testing.T, runtime string, total int, corpus *Corpus) *Report {
	all := workloads()
	rep := NewReport()
	var mu sync.Mutex
	t.Run("workloads", func(t *testing.T) {
		for _, w := range all {
			t.Run(w.app+" "+w.name, func(t *testing.T) {
				t.Parallel()
				one := NewReport()
				w.run(t, runtime, total/len(all), one, corpus)
				mu.Lock()
				defer mu.Unlock()
				rep.Add(one)
			})
		}
	})
	t.Log(rep.String())
	check(t, rep)
	return rep
}

func (w *workload) run(t *testing.T, runtime string, steps int, rep *Report, corpus *Corpus) {
	a := testenv.Start(t, w.app, testenv.Options{Runtime: runtime, Args: w.args, Env: w.env})
	start := time.Now()
	const slowest = 500 * time.Microsecond // a step, on a busy machine
	var kept int
	s := Session{PID: a.PID, Threads: w.threads, Steps: steps, Birth: w.birth, Corpus: corpus,
		Limit: 10*time.Second + time.Duration(steps)*slowest,
		OnMiss: func(m *Miss) {
			if kept++; *corpora == "" || kept > maxCorpora {
				return
			}
			if err := m.Record(*corpora, strings.ReplaceAll(w.app+"-"+w.name, " ", "-")); err != nil {
				t.Errorf("recording a miss: %v", err)
			}
		}}
	if err := s.Run(rep); err != nil {
		t.Error(err)
	}
	t.Logf("%d instructions in %v", rep.Steps(), time.Since(start).Round(time.Millisecond))
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
	}
}

// collect returns a corpus, written at the end of the test.
func collect(t *testing.T) *Corpus {
	name := *collected
	if name == "" {
		return nil
	}
	c, err := OpenCorpus(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range c.Write(name) {
			t.Errorf("corpus: %v", err)
		}
		notes := c.Notes()
		t.Logf("%s: %d moments\n%s", name, len(notes), strings.Join(notes, "\n"))
	})
	return c
}

// maxCorpora bounds the files of one workload.
const maxCorpora = 8

// check holds the run to its goals.
func check(t *testing.T, r *Report) {
	for _, v := range []Verdict{wrong, registers} {
		if n := r.Verdicts[v] + r.Folded[v]; n > 0 {
			t.Errorf("%d walks: %v", n, v)
		}
	}
	if n := r.Steps(); n == 0 || float64(n-r.Verdicts[equal]) > 1e-4*float64(n) {
		t.Errorf("%d of %d walks are not equal", n-r.Verdicts[equal], n)
	}
	if n := r.Steps(); float64(r.Held) > 1e-5*float64(n) {
		t.Errorf("%d walks were never judged", r.Held)
	}
	for code, n := range r.Jumps {
		t.Errorf("%d returns in %s to where no call has been: a frame was missing when stepping began, "+
			"or the rules do not know this code", n, code)
	}
	if r.counts.confirmed == 0 || r.counts.rets == 0 {
		t.Errorf("no frame was confirmed by a ret: %+v", r.counts)
	}
}
