package record

import (
	"slices"
	"testing"
	"time"

	"clrsnap/events"
	"clrsnap/profile"
)

// TestThreadRemarks: the numbers of threads agree with their words, and with the number of samples.
func TestThreadRemarks(t *testing.T) {
	const others = "they are threads of the runtime, or native threads that have called managed code"
	for _, c := range []struct {
		lives   lifetimes
		started int64
		want    []string
	}{
		{lifetimes{}, 0, nil},
		{lifetimes{created: 1, ended: 1}, 1, []string{"1 thread began and 1 ended."}},
		{
			lifetimes{created: 1, ended: 1, known: []time.Duration{2 * time.Millisecond}}, 0,
			[]string{"1 thread began and 1 ended. Managed code did not start 1 of them: " + others +
				". Threads that began and ended in the recording lived for 2ms (median)."},
		},
		{lifetimes{created: 3}, 7, []string{"3 threads began and 0 ended."}},
	} {
		e := newRecorder(Options{Events: events.Options{Monitor: events.MonitorThreads}}).events
		e.lives = c.lives
		e.counts[profile.ThreadStart].seen = c.started
		if got := e.remarks(); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestMissingRemark: the remark says why CPU time is in no sample, or that the reason is not known.
func TestMissingRemark(t *testing.T) {
	const period = 10 * time.Millisecond
	stats := func(samples, missed int) profile.ModeStats {
		return profile.ModeStats{Mode: profile.CPU, Rate: 100, Samples: samples, Missed: missed}
	}
	const begins = "The CPU samples stand for 70 % of the used CPU time: "
	for _, tt := range []struct {
		stats profile.ModeStats
		from  profile.Source
		used  time.Duration
		want  string // "": no remark
	}{
		{stats(1000, 0), profile.FromProcessors, 10 * time.Second, ""},
		{stats(920, 200), profile.FromProcessors, 10 * time.Second, ""}, // the target need not have been held up
		{stats(70, 0), profile.FromProcessors, time.Second, ""},         // too short to say
		{stats(700, 310), profile.FromProcessors, 10 * time.Second,
			"timers of the CPUs missed about 310 turns, as on a virtual machine that waits for shared CPUs."},
		{stats(700, 20), profile.FromProcessors, 10 * time.Second,
			"the machine's timers were late, or the sysctl kernel.perf_cpu_time_max_percent limits the samples."},
		{stats(700, 0), profile.FromAllProcessors, 10 * time.Second,
			"the machine's timers were late, or the sysctl kernel.perf_cpu_time_max_percent limits the samples."},
		{stats(700, 0), profile.FromThreads, 10 * time.Second,
			"a thread is sampled after each 10ms of CPU time, and CPU time after the last sample is not seen. " +
				"If threads live for a short time, a higher rate helps."},
	} {
		var want []string
		if tt.want != "" {
			want = []string{begins + tt.want}
		}
		if got := missingRemark(tt.stats, tt.from, tt.used, period); !slices.Equal(got, want) {
			t.Errorf("%+v from %s, of %v:\n%q, want\n%q", tt.stats, tt.from, tt.used, got, want)
		}
	}
}
