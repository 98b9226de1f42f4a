package main

import (
	"io"
	"os"
	"testing"
	"time"

	"clrsnap/profile"
)

// TestSummarize: the samples of time share one line, each kind of event has its own.
func TestSummarize(t *testing.T) {
	b := profile.NewBuilder(profile.Limits{})
	b.Thread(profile.RecordedThread{})
	b.Add(profile.Sample{Mode: profile.Alloc, Weight: 3 << 29, Events: 3400})
	b.Add(profile.Sample{Mode: profile.Exception, Weight: 1, Events: 1})
	b.Add(profile.Sample{Mode: profile.Contention, Weight: 45_600_000, Events: 12})
	r := b.Recording()
	r.Duration, r.Notes = 10*time.Second, []string{"A note."}
	r.Cost = profile.Cost{TargetCPU: 5 * time.Second, OwnCPU: time.Second, Processors: 2}
	events := []profile.ModeStats{
		{Mode: profile.Alloc, Samples: 1234, Broken: 5, Every: 512 << 10},
		{Mode: profile.Exception, Samples: 1, Lost: 2},
		{Mode: profile.Contention, Samples: 12, Seen: 900, Every: 1_000_000},
		{Mode: profile.GC},
	}
	const ofEvents = "" +
		"clrsnap: alloc: 2 ± 1 GiB in 3,000 ± 3,000 objects; 1,234 samples, one for every 512 KiB (5 incomplete)\n" +
		"clrsnap: exception: 1 exception; 1 sample, 2 lost\n" +
		"clrsnap: contention: 45.6 ms in 12 waits; 12 samples of 900 waits, those of 1.00 ms or longer\n" +
		"clrsnap: gc: 0 s; 0 pauses\n" +
		"clrsnap: note: A note.\n"
	for _, c := range []struct {
		modes []profile.ModeStats
		want  string
	}{
		{events, "clrsnap: 10s; the program used 0.50 of 2 CPUs, clrsnap 0.10\n" + ofEvents},
		{append([]profile.ModeStats{{Mode: profile.CPU, Samples: 5000, Broken: 7},
			{Mode: profile.Wall, Samples: 8, Lost: 9}}, events...),
			"clrsnap: 10s: 5,000 cpu samples (7 incomplete), 8 wall samples, 9 lost; " +
				"the program used 0.50 of 2 CPUs, clrsnap 0.10\n" + ofEvents},
	} {
		r.Modes = c.modes
		if got := summary(t, r); got != c.want {
			t.Errorf("got\n%swant\n%s", got, c.want)
		}
	}
}

// summary returns summarize's text about a recording.
func summary(t *testing.T, r *profile.Recording) string {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	(&app{stderr: in}).summarize(r, "-")
	in.Close()
	got, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}
