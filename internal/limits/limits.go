// Package limits has the judges of limits: the quota of CPU time, memory, the limit of the heap, and descriptors; and
// the judge of garbage collections that are too frequent. Each judge returns nothing if a healthy program could look
// the same.
package limits

import (
	"fmt"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Thresholds of limits.
const (
	fullMemory      = 0.90 // of the limit, without memory that can be given back without harm
	nearlyAllMemory = 0.95 // likewise, if the limit was not reached meanwhile
	// Of the heap's limit, if full collections try to make room all the time. If the collections are not known, this
	// much must have survived some collections.
	fullHeap = gather.FullHeap
	noFiles  = 0.99 // of the allowed descriptors
)

// Throttled looks for a used-up quota of CPU time.
func Throttled(e *gather.Evidence) []profile.Verdict {
	c := e.Throttled()
	if c == nil {
		return nil
	}
	first, last, _ := e.Delta()
	took := last.At - first.At
	return []profile.Verdict{{
		Cause: profile.CauseThrottled, Certainty: profile.Certain,
		Text: fmt.Sprintf("The control group's quota of CPU time, %.2g CPUs, is used up in %s of all periods: its "+
			"threads then stand still until the next one begins. They have stood for %s in %s.", c.Quota,
			phrase.Percent(float64(c.Throttled)/float64(c.Periods)), phrase.Seconds(c.Stood), phrase.Seconds(took)),
		Evidence: []profile.Evidence{
			{Text: fmt.Sprintf("cpu.stat of group %s: %d of %d periods throttled in %s.", c.Group, c.Throttled,
				c.Periods, phrase.Seconds(took))},
			{Text: fmt.Sprintf("The process has used %.2f CPUs.", gather.AtOnce(int64(last.CPU-first.CPU), took))},
		},
		Commands: []string{fmt.Sprintf("clrsnap record %d --mode cpu -d 10s", e.Process.PID)},
	}}
}

// Memory looks for a reached limit of memory.
func Memory(e *gather.Evidence) []profile.Verdict {
	list := groupMemory(e)
	if len(list) > 0 && list[0].Certainty == profile.Possible && len(heapLimit(e)) > 0 {
		return nil // the heap's limit says more
	}
	return list
}

func groupMemory(e *gather.Evidence) []profile.Verdict {
	if e.Ended {
		return killed(e)
	}
	first, last, ok := e.Delta()
	if !ok {
		return nil
	}
	d := last.Groups.Since(&first.Groups)
	for _, m := range d.Memory {
		used := m.Used - m.Reclaim
		limit := m.Limit()
		// Kills in groups below count, too, also of processes chosen by hand: kills alone are no sign.
		reached := m.Hits+m.Slowed > 0
		if share := float64(used) / float64(limit); limit == 0 || share < fullMemory ||
			share < nearlyAllMemory && !reached {
			continue
		}
		v := profile.Verdict{
			Cause: profile.CauseMemoryPressure, Certainty: profile.Certain,
			Text: fmt.Sprintf("The control group's memory is used up: %s of %s, and the limit was reached %s in %s.",
				phrase.BytesOf(used), phrase.BytesOf(limit), phrase.Counted(int(m.Hits+m.Slowed), "time", "times"),
				phrase.Seconds(last.At-first.At)),
			Evidence: []profile.Evidence{
				{Text: fmt.Sprintf("Group %s: %s used, %s of that are file pages that can be given back, limit %s.",
					m.Group, phrase.BytesOf(m.Used), phrase.BytesOf(m.Reclaim), phrase.BytesOf(limit))},
				{Text: fmt.Sprintf("The process has %s in RAM, with file pages and shared memory that may count for "+
					"others.", phrase.BytesOf(last.Rss))},
			},
			Commands: []string{fmt.Sprintf("clrsnap heap %d", e.Process.PID)},
		}
		if !reached {
			v.Certainty = profile.Possible
			v.Text = fmt.Sprintf("The control group's memory is nearly used up: %s of %s. The limit was not reached "+
				"in %s.", phrase.BytesOf(used), phrase.BytesOf(limit), phrase.Seconds(last.At-first.At))
		}
		if m.Kills > 0 {
			v.Text += fmt.Sprintf(" The kernel has killed %s of the group, or of groups below it, meanwhile.",
				phrase.Counted(int(m.Kills), "process", "processes"))
		}
		return []profile.Verdict{v}
	}
	return nil
}

// killed looks for a process that ended while its control group's memory was used up. The kernel kills a process
// then; no counter can be read of a process that has ended.
func killed(e *gather.Evidence) []profile.Verdict {
	if len(e.Moments) == 0 {
		return nil
	}
	last := &e.Moments[len(e.Moments)-1]
	m := last.Groups.LeastMemory()
	if m == nil || float64(m.Limit()-m.Left()) < fullMemory*float64(m.Limit()) {
		return nil
	}
	return []profile.Verdict{{
		Cause: profile.CauseMemoryPressure, Certainty: profile.Likely,
		Text: fmt.Sprintf("The process has ended, and %s before, %s of the %s of memory of its control group were "+
			"used: most likely the kernel has killed the process.", phrase.Seconds(e.Took-last.At),
			phrase.BytesOf(m.Limit()-m.Left()),
			phrase.BytesOf(m.Limit())),
		Evidence: []profile.Evidence{
			{Text: fmt.Sprintf("The process had %s in RAM.", phrase.BytesOf(last.Rss))},
			{Text: fmt.Sprintf("The kernel's log, and oom_kill in memory.events of group %s, say for certain.",
				m.Group)},
		},
	}}
}

// HeapLimit looks for a managed heap with hardly any room left below the runtime's limit.
func HeapLimit(e *gather.Evidence) []profile.Verdict {
	if len(Memory(e)) > 0 {
		return nil
	}
	return heapLimit(e)
}

func heapLimit(e *gather.Evidence) []profile.Verdict {
	if len(e.Heaps) == 0 || e.HeapLimit.Bytes <= 0 {
		return nil
	}
	used, kept := e.Heaps[0].Used(), e.Heaps[0].OldBytes()
	for i := range e.Heaps {
		used, kept = min(used, e.Heaps[i].Used()), min(kept, e.Heaps[i].OldBytes())
	}
	share := float64(used) / float64(e.HeapLimit.Bytes)
	c, known := collections{}, gather.HasMode(e.Samples, profile.GC)
	if known {
		c = collectionsOf(e.Samples)
	}
	busy := known && (float64(c.full) >= manyFull*c.duration.Seconds() || c.noRoom())
	if share < fullHeap || known && !busy || !known &&
		float64(kept) < fullHeap*float64(e.HeapLimit.Bytes) {
		return nil
	}
	v := profile.Verdict{
		Cause: profile.CauseMemoryPressure, Certainty: profile.Likely,
		Text:     fmt.Sprintf("The managed heap is nearly at its limit: %s of %s.", phrase.BytesOf(used), &e.HeapLimit),
		Commands: []string{fmt.Sprintf("clrsnap heap %d", e.Process.PID)},
	}
	if busy {
		if !e.HeapLimit.Assumed {
			v.Certainty = profile.Certain
		}
		v.Text += fmt.Sprintf(" The runtime collects all of it again and again to make room: %.1f full collections a "+
			"second, in which the program stood still for %s of the time.", float64(c.full)/c.duration.Seconds(),
			phrase.Percent(gather.AtOnce(int64(c.pause), c.duration)))
	}
	v.Text += filledBy(e.Filling, used)
	v.Evidence = append(v.Evidence, profile.Evidence{Text: fmt.Sprintf("Process memory in RAM: %s.",
		phrase.BytesOf(e.Moments[len(e.Moments)-1].Rss))})
	last := &e.Heaps[len(e.Heaps)-1]
	for i := range last.Types {
		if i == phrase.ShownSites {
			break
		}
		t := &last.Types[i]
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%s of %s, in %s.", phrase.BytesOf(int64(t.Bytes)), t.Name,
				phrase.Counted(int(t.Count), "object", "objects")),
		})
	}
	return []profile.Verdict{v}
}

// muchKept is the share of a full heap that makes its keeper worth a word.
const muchKept = 0.25

// filledBy says what keeps much of a full heap: the own field nearest to the objects, or the root. The text begins with
// a blank; "": not known.
func filledBy(p *snapshot.HeapPath, used int64) string {
	if p == nil || len(p.Steps) == 0 || float64(p.Objects.Bytes) < muchKept*float64(used) {
		return ""
	}
	by := phrase.OwnField(p)
	if p.Static != "" && !snapshot.Framework(p.Static) {
		by = p.Beginning()
	}
	if by == "" {
		return ""
	}
	about := ""
	if p.Sampled {
		about = "about "
	}
	return fmt.Sprintf(" A little later %s%s objects of %s with %s%s were kept by %s.", about,
		phrase.Number(int64(p.Objects.Count)), p.Steps[len(p.Steps)-1].Type, about,
		phrase.BytesOf(int64(p.Objects.Bytes)), by)
}

// Descriptors looks for a nearly reached limit of open files.
func Descriptors(e *gather.Evidence) []profile.Verdict {
	if len(e.Moments) == 0 {
		return nil
	}
	m := &e.Moments[len(e.Moments)-1]
	if !gather.Full(m.Files, m.FilesLimit) {
		return moreDescriptors(e)
	}
	v := profile.Verdict{
		Cause: profile.CauseDescriptors, Certainty: profile.Likely,
		Text: fmt.Sprintf("The process has %s of the %s descriptors that it may have", phrase.Number(int64(m.Files)),
			phrase.Number(int64(m.FilesLimit))),
		Commands: []string{fmt.Sprintf("lsof -p %d", e.Process.PID)},
	}
	if float64(m.Files) >= noFiles*float64(m.FilesLimit) {
		v.Certainty = profile.Certain
	}
	if kind, n := gather.Tally(m.Kinds).Top(); n > 0 {
		v.Text += fmt.Sprintf("; %s of them are %s", phrase.Number(int64(n)), kind)
	}
	v.Text += ". Beyond the limit no file, socket or pipe can be opened."
	if grown := m.Files - e.Moments[0].Files; grown > 0 {
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: fmt.Sprintf("%d more than %s before.", grown, phrase.Seconds(m.At-e.Moments[0].At)),
		})
	}
	v.Evidence = append(v.Evidence, kindsOf(m)...)
	return []profile.Verdict{v}
}

// kindsOf are the most frequent kinds of descriptors.
func kindsOf(m *gather.Moment) (out []profile.Evidence) {
	const shown = 5
	list := gather.Tally(m.Kinds).Sorted()
	for _, k := range list[:min(len(list), shown)] {
		out = append(out, profile.Evidence{Text: fmt.Sprintf("%s: %d", k, m.Kinds[k])})
	}
	return out
}

// moreDescriptors looks for descriptors that have become more all the time, below the limit.
func moreDescriptors(e *gather.Evidence) []profile.Verdict {
	first, last := &e.Moments[0], &e.Moments[len(e.Moments)-1]
	grown, took := gather.MoreFiles(first, last), last.At-first.At
	if grown == 0 || !gather.Steady(first.Files, last.Files, took, e.Age) {
		return nil
	}
	rate := float64(grown) / took.Seconds()
	v := profile.Verdict{
		Cause: profile.CauseDescriptors, Certainty: profile.Possible,
		Text: fmt.Sprintf("Descriptors become more: %s are open, %s more than %s before (%.1f a second). It has gone "+
			"on like this since the program started, %s ago: more is opened than is closed, unless more and more "+
			"clients come.", phrase.Number(int64(last.Files)), phrase.Number(int64(grown)), phrase.Seconds(took), rate,
			phrase.Seconds(e.Age)),
		Evidence: kindsOf(last),
		Commands: []string{fmt.Sprintf("lsof -p %d", e.Process.PID)},
	}
	if left := last.FilesLimit - last.Files; left > 0 {
		v.Text += fmt.Sprintf(" At this rate the limit of %s is reached in %s.", phrase.Number(int64(last.FilesLimit)),
			phrase.Seconds(time.Duration(float64(left)/rate*float64(time.Second))))
	}
	addClients(&v, e, grown)
	return []profile.Verdict{v}
}

// addClients tells of HttpClients that become more, and of connections of the process to itself, if these can be most
// of the new descriptors.
func addClients(v *profile.Verdict, e *gather.Evidence, grown int) {
	if n := e.Inside(); 2*n >= grown {
		v.Text += fmt.Sprintf(" %s both ends in this process, and so two descriptors each.", phrase.Counted(n,
			"connection has", "connections have"))
	}
	n, over := e.MoreHandlers()
	if n == 0 {
		return
	}
	v.Text += fmt.Sprintf(" There are %d more SocketsHttpHandler objects than %s before: each HttpClient with a "+
		"handler of its own opens connections of its own.", n, phrase.Seconds(over))
	if s := e.MakesHandlers(); s != nil {
		v.Text += fmt.Sprintf(" They are made in %s.", phrase.Method(s.Frame(e.Samples)))
		v.Evidence = append(v.Evidence, profile.Evidence{
			Text: "Such objects are made here:", Frames: gather.WithoutEvents(gather.Frames(e.Samples, s.Leaf)),
		})
	}
	if e.Handlers != nil {
		v.Text += phrase.KeptBy("They are", e.Handlers)
		v.Evidence = append(v.Evidence, profile.Evidence{Text: "The way to them: " + phrase.Way(e.Handlers) + "."})
	}
}
