package living

import (
	"context"
	"flag"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/judge"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

var churnTime = flag.Duration("churn", layer.Size(12*time.Second, time.Hour), "how `long` TestLiving records in all")

// eachRecording is the length of a recording: each recording meets all code for the first time.
const eachRecording = 30 * time.Second

// TestLiving: in an hour of churn under load all living code has its name, all stacks are
// complete, and no code has the name of other, unloaded code.
func TestLiving(t *testing.T) {
	layer.Quiet(t)
	d := *churnTime
	a := testenv.Start(t, "living", testenv.Options{Reuse: true, Args: []string{
		"--living", "90", "--threads", "2", "--churn", "2", "--max-seconds", strconv.Itoa(int(d.Seconds()) + 600),
	}})
	p := livetest.Open(t, a, clrsnap.Options{})
	s := places{names: map[uint64]string{}}
	live, gone, incomplete, elsewhere, samples, all := 0, 0, 0, 0, 0, 0
	methods, unnamed := map[string]bool{}, map[string]int{}
	end := time.Now().Add(d)
	var busy time.Time // until when
	few := func() bool { return live < 100 || gone < 100 || s.reused == 0 }
	goOn := livetest.GoOn(d, few)
	for n := 0; goOn() && !t.Failed(); n++ {
		if time.Now().After(busy) {
			livetest.StartBusy(t, 2*runtime.NumCPU()) // for 15 minutes
			busy = time.Now().Add(14 * time.Minute)
		}
		o := record.Options{
			Modes:    []profile.Mode{profile.CPU, profile.Wall},
			Duration: max(time.Second, min(eachRecording, d/4, time.Until(end))),
		}
		if n%2 == 1 {
			o.Events = events.Options{Monitor: events.MonitorAll, RingBytes: 4 << 20}
		}
		livetest.Watch(&o, s.saw)
		r, err := record.Record(context.Background(), p, o)
		if err != nil && o.Events.Monitor != 0 && strings.Contains(err.Error(), "does not answer") {
			t.Logf("NOT RECORDED, the program has had no CPU for too long: %v", err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		m := livetest.CheckMarks(t, r)
		live, gone, incomplete, elsewhere = live+m.Live, gone+m.Gone, incomplete+m.Incomplete, elsewhere+m.Elsewhere
		samples, all = samples+len(r.Samples), n+1
		for name := range m.Methods {
			methods[name] = true
		}
		for what, n := range m.Unnamed {
			unnamed[what] += n
		}
	}
	livetest.EndsWell(t, a)
	t.Logf("%v in %d recordings: %d samples; the program made %d methods", d, all, samples, a.Counts["methods"])
	t.Logf("frames of %d methods: %d of those that live, %d of those that are dropped, which were also %s; "+
		"%d incomplete stacks of threads that drop methods; %d for other reasons, of all threads",
		len(methods), live, gone, judge.Figures(unnamed), incomplete, elsewhere)
	t.Logf("%d frames at the place of a method with another name", s.reused)
	if elsewhere > samples/200 {
		t.Errorf("%d of %d stacks are incomplete", elsewhere, samples)
	}
	if few() {
		t.Error("nothing wrong could have been seen")
	}
}

// places counts how often the place of a method has become the place of another method.
type places struct {
	names  map[uint64]string // by instruction pointer
	reused int
}

func (p *places) saw(th *snapshot.Thread, _, _ uint64) {
	for i := range th.Frames {
		f := &th.Frames[i]
		if !strings.Contains(f.Method, "Gone") {
			continue
		}
		if old, ok := p.names[f.IP]; ok && old != f.Method {
			p.reused++
		}
		p.names[f.IP] = f.Method
	}
}
