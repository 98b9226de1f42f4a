package record

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"clrsnap/internal/priority"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

func newRecorder(o Options) *recorder {
	r := &recorder{o: o, b: profile.NewBuilder(profile.Limits{}), refused: map[int]bool{}, endAlone: func() {}}
	if o.Alone {
		r.endAlone = live.Alone()
	}
	r.threads.b, r.assemblies = r.b, newAssemblies(r.b)
	if o.Events.Monitor != 0 {
		r.events = newEventSampler(r)
	}
	return r
}

// begin starts to sample process pid.
func (r *recorder) begin(pid int) error {
	r.began, r.start = time.Now(), live.Monotonic()
	r.now = r.start
	r.ownCPU = r.cpuOfOurs()
	if r.events != nil && r.events.launcher != nil {
		r.events.serve(pid)
	}
	if len(r.o.Modes) == 0 {
		return nil
	}
	c, err := newCPUSampler(r, pid)
	switch {
	case err == nil:
		r.cpu = c
	case !r.o.has(profile.Wall):
		return err
	case r.o.has(profile.CPU):
		r.notes = append(r.notes, fmt.Sprintf("There are no CPU samples: %v.", err))
	}
	if r.o.has(profile.Wall) {
		r.wall = newWallSampler(r)
	}
	return nil
}

func (r *recorder) close() {
	defer r.endAlone()
	if r.events != nil {
		r.events.close()
	}
	if r.cpu != nil {
		r.cpu.close()
	}
	for _, rp := range r.all {
		if rp.owned {
			rp.p.Close()
		}
	}
	r.assemblies.close()
}

// run records until it is time to end.
func (r *recorder) run(ctx context.Context) (out *profile.Recording) {
	if r.o.Alone {
		priority.Relax()
	}
	priority.Run(r.o.Alone, func(p *priority.Priority) {
		r.haste.raise, r.haste.ready = p.Raise, p.Ready
		r.haste.begin(live.Monotonic(), r.startsUntil())
		r.record(ctx)
	})
	if r.o.Alone {
		defer priority.Hasten()()
	}
	out = r.finish()
	r.addLines(ctx, out)
	return out
}

func (r *recorder) record(ctx context.Context) {
	var end time.Duration
	if r.o.Duration > 0 {
		end = r.start + r.o.Duration
	}
	var drain, mayDrain, report time.Duration
	for ctx.Err() == nil {
		r.now = live.Monotonic()
		if end > 0 && r.now >= end || !r.alive() {
			break
		}
		if r.now >= mayDrain || r.wall != nil && r.wall.joins(drain) {
			after := r.drainAfter()
			drain, mayDrain = r.now+after, r.now+after*3/4 // the earlier time if we are awake
			r.housekeep()
		}
		next := drain
		if r.wall != nil {
			next = min(next, r.wall.step())
		}
		if r.now >= report {
			report = r.now + reportEvery
			r.report()
		}
		if end > 0 {
			next = min(next, end)
		}
		if r.wait(ctx, next) {
			mayDrain = 0
		}
	}
	r.now = live.Monotonic()
	for _, rp := range r.all {
		if rp.update(); !rp.ended {
			rp.list(true) // for names that threads have got lately
		}
	}
	if r.cpu != nil {
		r.cpu.finish()
	}
	if r.wall != nil {
		r.wall.finish()
		r.now = live.Monotonic()
	}
	if r.events != nil {
		r.events.finish(ctx)
	}
}

// drainAfter is how long until the kernel's buffers are to be emptied again.
func (r *recorder) drainAfter() time.Duration {
	for _, rp := range r.all {
		if rp.frames.news > 0 && r.now < rp.frames.news+newsLast {
			return drainSoon
		}
	}
	reported := r.events != nil && r.now < r.events.latest+time.Second
	if len(r.pending) > 0 || r.now < r.startsUntil() || reported {
		return drainFirst
	}
	if r.unwalked > 0 && r.now < r.unwalked+failsLast {
		return drainNew
	}
	return drainEvery
}

// wait returns at a time, or earlier if there is work; full: the kernel's buffers fill up.
func (r *recorder) wait(ctx context.Context, until time.Duration) (full bool) {
	left := until - live.Monotonic()
	if left <= 0 {
		return false
	}
	defer func() { r.haste.woken(live.Monotonic(), until) }()
	if r.cpu != nil {
		return r.cpu.wait(left)
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// housekeep does the regular work of every few milliseconds.
func (r *recorder) housekeep() {
	r.openPending()
	r.meetChildren()
	for _, rp := range r.all {
		rp.leave()               // before samples since are read: they may be of another program
		rp.frames.unloads.look() // for the same reason
	}
	if r.cpu != nil {
		r.cpu.drain() // before ended threads are forgotten
	}
	if r.events != nil {
		r.events.drain()
	}
	for _, rp := range r.all {
		if rp.update(); !rp.ended {
			rp.frames.know(surveySlice)
			rp.frames.places.look(r.now)
		}
	}
}

// cpuOfOurs is the CPU time used by this process, including the tasks that stop threads for it.
func (r *recorder) cpuOfOurs() time.Duration {
	used := live.OwnCPU()
	for _, rp := range r.all {
		used += rp.p.Live.TracingCPU()
	}
	return used
}

// targetCPU is the CPU time used by the processes since recording began.
func (r *recorder) targetCPU() time.Duration {
	var sum time.Duration
	for _, rp := range r.all {
		sum += rp.usedCPU()
	}
	return sum
}

// report calls Options.Progress.
func (r *recorder) report() {
	if r.o.Progress == nil {
		return
	}
	used := r.targetCPU()
	pr := Progress{Elapsed: r.now - r.start}
	for _, m := range r.modes() {
		pr.Samples += m.Samples
		pr.Broken += m.Broken
		pr.Lost += m.Lost
	}
	for _, rp := range r.all {
		pr.Threads += rp.count
	}
	if d := r.now - r.reported; r.reported > 0 && d > 0 {
		pr.TargetCPU = float64(used-r.busy) / float64(d)
	}
	r.reported, r.busy = r.now, used
	r.o.Progress(pr)
}

func (r *recorder) modes() []profile.ModeStats {
	var out []profile.ModeStats
	if r.cpu != nil && !r.cpu.quiet {
		s := r.cpu.stats
		s.Source = r.source(profile.CPU)
		out = append(out, s)
	}
	if r.wall != nil {
		s := r.wall.modeStats()
		if s.Source = r.source(profile.Wall); s.Source == profile.FromProcessors {
			s.Missed = r.cpu.stats.Missed
		}
		out = append(out, s)
	}
	if r.events != nil {
		out = append(out, r.events.stats()...)
	}
	return out
}

// finish makes the recording.
func (r *recorder) finish() *profile.Recording {
	r.report()
	cost := profile.Cost{
		TargetCPU: r.targetCPU(), OwnCPU: r.cpuOfOurs() - r.ownCPU, OwnMemory: live.PeakMemory(),
		Processors: runtime.NumCPU(),
	}
	out := nameKernel(r.addInlined(r.b.Recording()))
	out.Start, out.Duration = r.began, r.now-r.start
	out.Modes = r.modes()
	out.Cost = cost
	for _, rp := range r.all {
		out.Processes = append(out.Processes, rp.p.Info())
	}
	out.Notes = r.remarks()
	if r.events != nil {
		out.Messages = r.events.messages.messages()
		out.Notes = append(out.Notes, agentRemarks(out)...)
	}
	return out
}
