package recordsoak

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/judge"
	"clrsnap/internal/proof/observer"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

var soakTime = flag.Duration("soak", layer.Size(12*time.Second, 10*time.Minute), "how `long` TestRecordSoak records")

// workers make and unload code, collect garbage in every way, throw, tier up, and have threads
// come and go by the hundred.
const workers = "thread-work,thread-micro,gen-context,gen-emitted,gen-dynamic,gen-expression," +
	"gc-kinds,large-objects,tier-up,eh-storm,throw-catch,async-storm"

// TestRecordSoak records in both modes while threads come and go and code is made and unloaded.
func TestRecordSoak(t *testing.T) {
	layer.Quiet(t)
	d := *soakTime
	seconds := strconv.Itoa(int(d.Seconds()) + 300) // the test ends the program earlier
	a := testenv.Start(t, "scenarios", testenv.Options{
		JitDump: true, Reuse: true, Env: []string{"DOTNET_TC_CallCountingDelayMs=0"},
		Args: []string{"--busy", seconds, "--max-seconds", seconds, "--storm", "--no-blocked", "--workers", workers},
	})
	s := &soak{a: a, judge: judge.New(a.JitDump())}
	// The other recorder has a process of its own, for a clean measurement of its memory.
	other := observer.Recorder(t, livetest.Command(t), a.PID)
	r := s.recorded(t, livetest.Open(t, a, clrsnap.Options{}), other.Cmd.Process.Pid, d)
	q, err := other.End()
	if err != nil {
		t.Fatalf("the other recorder: %v", err)
	}
	livetest.EndsWell(t, a)
	for _, m := range r.Modes {
		t.Log(livetest.StatsLine(t, r, m.Mode))
	}
	t.Logf("%d functions, %d locations, %d nodes, %d threads, %d samples",
		len(r.Functions), len(r.Locations), len(r.Nodes), len(r.Threads), len(r.Samples))
	for _, n := range r.Notes {
		t.Log(n)
	}
	t.Logf("the target counted: %s", judge.Figures(a.Counts))
	s.judge.Report(t)
	if s.judge.Frames() < 1000 || s.judge.Reused["collectible context"] == 0 || s.judge.Replayed == 0 {
		t.Errorf("%d frames compared, in reused places: %s, %d to feed again: nothing stale could have been seen",
			s.judge.Frames(), judge.Figures(s.judge.Reused), s.judge.Replayed)
	}
	s.checkMemory(t, q)
	s.checkDrift(t, r)
}

// soak follows a recording.
type soak struct {
	a     *testenv.App
	judge *judge.Judge

	mu   sync.Mutex
	seen []sighting // by the recorder, not given to the judge yet

	moments []moment
}

// A sighting is a walk at some time from begin to end.
type sighting struct {
	th         *snapshot.Thread
	begin, end uint64
}

// A moment is a measurement at some time.
type moment struct {
	at     time.Time
	cpu    time.Duration // used by the target
	others time.Duration // likewise, programs other than target, recorders and judge
	stolen time.Duration // taken away by other machines
	memory int64         // of the other recorder, in bytes
}

func (s *soak) recorded(t *testing.T, p *clrsnap.Process, other int, d time.Duration) *profile.Recording {
	t.Helper()
	o := record.Options{Modes: []profile.Mode{profile.CPU, profile.Wall}, Duration: d}
	livetest.Watch(&o, func(th *snapshot.Thread, begin, end uint64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, sighting{th, begin, end})
	})
	type result struct {
		r   *profile.Recording
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := record.Record(context.Background(), p, o)
		done <- result{r, err}
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case got := <-done:
			if got.err == nil {
				got.err = s.settle()
			}
			if got.err == nil {
				got.err = s.judge.Finish()
			}
			if got.err != nil {
				t.Fatal(got.err)
			}
			return got.r
		case <-tick.C:
			s.moments = append(s.moments, s.moment(t, other))
			if err := s.settle(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// moment measures now.
func (s *soak) moment(t *testing.T, other int) moment {
	t.Helper()
	m := moment{
		at: time.Now(), cpu: livetest.CPU(t, s.a.PID), stolen: livetest.StolenCPU(t), memory: residentMemory(t, other),
	}
	m.others = livetest.MachineCPU(t) - m.cpu - livetest.CPU(t, other) - livetest.CPU(t, os.Getpid())
	return m
}

// settle gives the new sightings to the judge.
func (s *soak) settle() error {
	s.mu.Lock()
	seen := s.seen
	s.seen = nil
	s.mu.Unlock()
	for _, x := range seen {
		s.judge.Saw(x.th, x.begin, x.end)
	}
	return s.judge.Settle()
}

// memoryBound is the most that a recorder of one program may use, however long the recording.
const memoryBound = 512 << 20

// checkMemory requires that memory stops growing once the recorder has seen
// everything: the second half of the time may add only samples and new names.
func (s *soak) checkMemory(t *testing.T, q *observer.Quality) {
	t.Helper()
	most := func(of []moment) (m int64) {
		for _, x := range of {
			m = max(m, x.memory)
		}
		return m
	}
	half := len(s.moments) / 2
	first, second := most(s.moments[:half]), most(s.moments[half:])
	minutes := s.moments[len(s.moments)-1].at.Sub(s.moments[half].at).Minutes()
	t.Logf("a recorder's memory: at most %d MB in the first half, %d MB in the second, %d MB in all",
		first>>20, second>>20, q.Memory>>20)
	const aMinute = 16 << 20 // of new samples, stacks and names
	if second > memoryBound || q.Memory > memoryBound || second-first > 24<<20+int64(minutes*aMinute) {
		t.Errorf("a recorder's memory grows: from %d to %d MB, in the end %d MB", first>>20, second>>20, q.Memory>>20)
	}
}

// checkDrift compares the samples' time with the clocks, in the first quarter of
// the time and in the last, or in the first and last minute.
func (s *soak) checkDrift(t *testing.T, r *profile.Recording) {
	t.Helper()
	n := len(s.moments)
	width := min(n/4, int(time.Minute/(200*time.Millisecond)))
	always := s.livedThroughout(t, r)
	// Only the total number of missed turns is known, not their part of the time.
	missed := livetest.Missed(r)
	late := missed > livetest.TooLate
	all, lacks := r.Cost.TargetCPU, missing(r)
	if late && lacks > livetest.ByChance(all)+all*3/100 {
		t.Errorf("%v of %v of CPU time are in no sample, and no timer was late then", lacks, all)
	}
	var shares, others [2]float64
	for i, part := range [][2]moment{{s.moments[1], s.moments[width]}, {s.moments[n-1-width], s.moments[n-2]}} {
		name := []string{"first", "last"}[i]
		from, to := part[0].at.Sub(r.Start), part[1].at.Sub(r.Start)
		var cpu, wall time.Duration
		for j := range r.Samples {
			x := &r.Samples[j]
			switch {
			case x.Mode == profile.CPU && x.At >= from && x.At < to:
				cpu += time.Duration(x.Weight)
			case x.Mode == profile.Wall && always[x.Thread]:
				// The sample stands for the time before the sample: count the time within
				// the part. After a pause of the whole machine the rest may be long.
				wall += max(0, min(x.At, to)-max(x.At-time.Duration(x.Weight), from))
			}
		}
		others[i] = (part[1].others - part[0].others).Seconds() / (to - from).Seconds()
		used, passed := part[1].cpu-part[0].cpu, (to-from)*time.Duration(len(always))
		t.Logf("%s part, %v: samples stand for %v of %v of CPU time (%.1f %%), "+
			"and for %v of %v of %d threads (%.1f %%); other programs used %.1f CPUs",
			name, (to - from).Round(time.Millisecond), cpu, used, livetest.ShareOf(cpu, used),
			wall, passed, len(always), livetest.ShareOf(wall, passed), others[i])
		// Chance decides which samples of the CPUs are of the program.
		chance := livetest.ShareOf(livetest.ByChance(used), used)
		stolen := livetest.ShareOf(part[1].stolen-part[0].stolen, used)
		if shares[i] = livetest.ShareOf(cpu, used); shares[i] < 97-chance || shares[i] > 103+chance+stolen {
			says := fmt.Sprintf("in the %s part CPU samples stand for %.1f %% of the CPU time; "+
				"other machines took %.1f %%", name, shares[i], stolen)
			if late && shares[i] < 97 {
				t.Logf("NOT JUDGED: %s, and timers of the CPUs missed %.1f %% of the turns", says, 100*missed)
			} else {
				t.Error(says)
			}
		}
		if share := livetest.ShareOf(wall, passed); share < 95 || share > 105 {
			t.Errorf("in the %s part wall samples of %d threads stand for %.1f %% of the time",
				name, len(always), share)
		}
	}
	if math.Abs(shares[0]-shares[1]) > 12 { // chance alone seldom makes 10
		says := fmt.Sprintf("CPU samples stand for %.1f %% of the CPU time at first, for %.1f %% in the end",
			shares[0], shares[1])
		switch most := slices.Max(others[:]); {
		case most > livetest.TooBusy:
			// The more often threads lose their CPUs, the more periods begin.
			t.Logf("NOT JUDGED: %s, because other programs used %.1f CPUs", says, most)
		case late:
			t.Logf("NOT JUDGED: %s, and timers of the CPUs missed %.1f %% of the turns", says, 100*missed)
		default:
			t.Error(says)
		}
	}
}

// missing is the used CPU time for which neither samples nor missed turns of timers stand.
func missing(r *profile.Recording) time.Duration {
	m, _ := r.Mode(profile.CPU)
	return r.Cost.TargetCPU - time.Duration(float64(m.Samples+m.Missed)/m.Rate*float64(time.Second))
}

// livedThroughout lists the threads, by their index, that lived before the recording
// and live now.
func (s *soak) livedThroughout(t *testing.T, r *profile.Recording) map[int32]bool {
	t.Helper()
	first := map[int32]time.Duration{}
	last := map[int32]time.Duration{}
	for i := range r.Samples {
		if x := &r.Samples[i]; x.Mode == profile.Wall {
			if _, ok := first[x.Thread]; !ok {
				first[x.Thread] = x.At - time.Duration(x.Weight)
			}
			last[x.Thread] = x.At
		}
	}
	out := map[int32]bool{}
	for th := range first {
		// Without a free CPU, the thread's last sample can be long ago.
		lately := r.Duration - max(time.Second, r.Duration/50)
		if r.Threads[th].OSThreadID != 0 && first[th] < 100*time.Millisecond && last[th] > lately {
			out[th] = true
		}
	}
	if len(out) < 5 {
		t.Errorf("only %d threads lived all the time", len(out))
	}
	return out
}

// residentMemory is a process's memory, in bytes.
func residentMemory(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "VmRSS:")
	var kb int64
	if _, err := fmt.Sscanf(text, "%d kB", &kb); err != nil {
		t.Fatal(err)
	}
	return kb << 10
}
