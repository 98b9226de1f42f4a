package why

import (
	"fmt"

	"clrsnap/profile"
)

// Thresholds of limits.
const (
	throttledPeriods = 0.25 // of the periods: periods with the quota used up
	throttledTime    = 0.10 // of the time: processes had to wait then
	fullMemory       = 0.90 // of the limit, without memory that can be given back without harm
	nearlyAllMemory  = 0.95 // likewise, if the limit was not reached meanwhile
	// Of the heap's limit, if full collections try to make room all the time. If the collections are not known, this
	// much must have survived some collections.
	fullHeap  = 0.85
	fullFiles = 0.90
	noFiles   = 0.99
)

// delta is the change of the control groups' counters; false: there are not two moments.
func (e *evidence) delta() (first, last *moment, ok bool) {
	if len(e.moments) < 2 {
		return nil, nil, false
	}
	return &e.moments[0], &e.moments[len(e.moments)-1], true
}

// judgeThrottled looks for a used-up quota of CPU time.
func judgeThrottled(e *evidence) []profile.Verdict {
	first, last, ok := e.delta()
	if !ok {
		return nil
	}
	took := last.at - first.at
	d := last.groups.Since(&first.groups)
	for _, c := range d.CPU {
		share := float64(c.Throttled) / float64(max(c.Periods, 1))
		if took < enough || c.Periods < 5 || share < throttledPeriods || atOnce(int64(c.Stood), took) < throttledTime {
			continue
		}
		return []profile.Verdict{{
			Cause: profile.CauseThrottled, Certainty: profile.Certain,
			Text: fmt.Sprintf("The control group's quota of CPU time, %.2g CPUs, is used up in %s of all periods: its "+
				"threads then stand still until the next one begins. They have stood for %s in %s.", c.Quota,
				percent(share), seconds(c.Stood), seconds(took)),
			Evidence: []profile.Evidence{
				{Text: fmt.Sprintf("cpu.stat of group %s: %d of %d periods throttled in %s.", c.Group, c.Throttled,
					c.Periods, seconds(took))},
				{Text: fmt.Sprintf("The process has used %.2f CPUs.", atOnce(int64(last.cpu-first.cpu), took))},
			},
			Commands: []string{fmt.Sprintf("clrsnap record %d --mode cpu -d 10s", e.process.PID)},
		}}
	}
	return nil
}

// judgeMemory looks for a reached limit of memory.
func judgeMemory(e *evidence) []profile.Verdict {
	if e.ended {
		return judgeKilled(e)
	}
	first, last, ok := e.delta()
	if !ok {
		return nil
	}
	d := last.groups.Since(&first.groups)
	for _, m := range d.Memory {
		used := m.Used - m.Reclaim
		limit := m.Limit()
		// Kills in groups below count, too, also of processes chosen by hand: kills alone are no sign.
		reached := m.Hits+m.Slowed > 0
		if share := float64(used) / float64(limit); limit == 0 || share < fullMemory || share < nearlyAllMemory && !reached {
			continue
		}
		v := profile.Verdict{
			Cause: profile.CauseMemoryPressure, Certainty: profile.Certain,
			Text: fmt.Sprintf("The control group's memory is used up: %s of %s, and the limit was reached %s in %s.",
				bytesOf(used), bytesOf(limit), counted(int(m.Hits+m.Slowed), "time", "times"),
				seconds(last.at-first.at)),
			Evidence: []profile.Evidence{
				{Text: fmt.Sprintf("Group %s: %s used, %s of that are file pages that can be given back, limit %s.",
					m.Group, bytesOf(m.Used), bytesOf(m.Reclaim), bytesOf(limit))},
				{Text: fmt.Sprintf("The process has %s in RAM, with file pages and shared memory that may count for others.",
					bytesOf(last.rss))},
			},
			Commands: []string{fmt.Sprintf("clrsnap heap %d", e.process.PID)},
		}
		if !reached {
			v.Certainty = profile.Possible
			v.Text = fmt.Sprintf("The control group's memory is nearly used up: %s of %s. The limit was not reached in %s.",
				bytesOf(used), bytesOf(limit), seconds(last.at-first.at))
		}
		if m.Kills > 0 {
			v.Text += fmt.Sprintf(" The kernel has killed %s of the group, or of groups below it, meanwhile.",
				counted(int(m.Kills), "process", "processes"))
		}
		return []profile.Verdict{v}
	}
	return nil
}

// judgeKilled looks for a process that ended while its control group's memory was used up. The kernel kills a process
// then; no counter can be read of a process that has ended.
func judgeKilled(e *evidence) []profile.Verdict {
	if len(e.moments) == 0 {
		return nil
	}
	last := &e.moments[len(e.moments)-1]
	m := last.groups.LeastMemory()
	if m == nil || float64(m.Limit()-m.Left()) < fullMemory*float64(m.Limit()) {
		return nil
	}
	return []profile.Verdict{{
		Cause: profile.CauseMemoryPressure, Certainty: profile.Likely,
		Text: fmt.Sprintf("The process has ended, and %s before, %s of the %s of memory of its control group were used: "+
			"most likely the kernel has killed the process.", seconds(e.took-last.at), bytesOf(m.Limit()-m.Left()),
			bytesOf(m.Limit())),
		Evidence: []profile.Evidence{
			{Text: fmt.Sprintf("The process had %s in RAM.", bytesOf(last.rss))},
			{Text: fmt.Sprintf("The kernel's log, and oom_kill in memory.events of group %s, say for certain.", m.Group)},
		},
	}}
}

// judgeHeapLimit looks for a managed heap with hardly any room left below the runtime's limit.
func judgeHeapLimit(e *evidence) []profile.Verdict {
	if len(e.heaps) == 0 || e.heapLimit.bytes <= 0 || len(judgeMemory(e)) > 0 {
		return nil
	}
	used, kept := e.heaps[0].used(), oldBytes(&e.heaps[0])
	for i := range e.heaps {
		used, kept = min(used, e.heaps[i].used()), min(kept, oldBytes(&e.heaps[i]))
	}
	share := float64(used) / float64(e.heapLimit.bytes)
	c, known := collections{}, hasMode(e.samples, profile.GC)
	if known {
		c = collectionsOf(e.samples)
	}
	busy := known && (float64(c.full) >= manyFull*c.duration.Seconds() || c.noRoom())
	if share < fullHeap || known && !busy || !known && float64(kept) < fullHeap*float64(e.heapLimit.bytes) {
		return nil
	}
	v := profile.Verdict{
		Cause: profile.CauseMemoryPressure, Certainty: profile.Likely,
		Text:     fmt.Sprintf("The managed heap is nearly at its limit: %s of %s.", bytesOf(used), &e.heapLimit),
		Commands: []string{fmt.Sprintf("clrsnap heap %d", e.process.PID)},
	}
	if busy {
		if !e.heapLimit.assumed {
			v.Certainty = profile.Certain
		}
		v.Text += fmt.Sprintf(" The runtime collects all of it again and again to make room: %.1f full collections a "+
			"second, in which the program stood still for %s of the time.", float64(c.full)/c.duration.Seconds(),
			percent(atOnce(int64(c.pause), c.duration)))
	}
	v.Evidence = append(v.Evidence, profile.Evidence{Text: fmt.Sprintf("Process memory in RAM: %s.",
		bytesOf(e.moments[len(e.moments)-1].rss))})
	last := &e.heaps[len(e.heaps)-1]
	for i := range last.Types {
		if i == shownSites {
			break
		}
		t := &last.Types[i]
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%s of %s, in %s.", bytesOf(int64(t.Bytes)), t.Name,
				counted(int(t.Count), "object", "objects")),
		})
	}
	return []profile.Verdict{v}
}

// String gives the limit, and the limit's source.
func (l *heapLimit) String() string {
	if l.assumed {
		return fmt.Sprintf("about %s (%s, unless runtimeconfig.json says otherwise)", bytesOf(l.bytes), l.source)
	}
	return fmt.Sprintf("%s (%s)", bytesOf(l.bytes), l.source)
}

// full reports whether nearly all descriptors are used.
func full(files, limit int) bool { return limit > 0 && float64(files) >= fullFiles*float64(limit) }

// judgeDescriptors looks for a nearly reached limit of open files.
func judgeDescriptors(e *evidence) []profile.Verdict {
	if len(e.moments) == 0 {
		return nil
	}
	m := &e.moments[len(e.moments)-1]
	if !full(m.files, m.filesLimit) {
		return nil
	}
	v := profile.Verdict{
		Cause: profile.CauseDescriptors, Certainty: profile.Likely,
		Text: fmt.Sprintf("The process has %s of the %s descriptors that it may have", number(int64(m.files)),
			number(int64(m.filesLimit))),
		Commands: []string{fmt.Sprintf("lsof -p %d", e.process.PID)},
	}
	if float64(m.files) >= noFiles*float64(m.filesLimit) {
		v.Certainty = profile.Certain
	}
	if kind, n := tally(m.kinds).top(); n > 0 {
		v.Text += fmt.Sprintf("; %s of them are %s", number(int64(n)), kind)
	}
	v.Text += ". Beyond the limit no file, socket or pipe can be opened."
	if grown := m.files - e.moments[0].files; grown > 0 {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%d more than %s before.", grown, seconds(m.at-e.moments[0].at)),
		})
	}
	for i, k := range tally(m.kinds).sorted() {
		if i == 5 {
			break
		}
		v.Evidence = append(v.Evidence, profile.Evidence{Text: fmt.Sprintf("%s: %d", k, m.kinds[k])})
	}
	return []profile.Verdict{v}
}
