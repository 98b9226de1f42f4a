package gather

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"clrsnap/internal/heapwalk"
	"clrsnap/internal/phrase"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// SourceField is the field that keeps a source.
func SourceField(path *snapshot.HeapPath) string {
	return cmp.Or(phrase.OwnField(path), path.Beginning())
}

// unkeptTasks says that the verdicts on waits for tasks, and on failed tasks, lack a part.
const unkeptTasks = "What keeps the tasks that the program waits for was not found out: %v."

// keptTasks finds what keeps the sources that async methods wait for, and failed tasks that nobody has observed, if
// the heap is quick to read.
func (g *Gatherer) keptTasks(ctx context.Context) {
	l := g.LastFlight()
	if l == nil || len(g.Heaps) == 0 {
		return
	}
	var failed []uint64
	for i := range l.Tasks.Faults {
		if f := &l.Tasks.Faults[i]; !f.Observed && f.Service == "" && len(failed) < ShownFaults {
			failed = append(failed, f.Object)
		}
	}
	threads := g.sourceThreads()
	if len(l.Sources)+len(failed)+len(threads) == 0 {
		return
	}
	if err := g.slow(); err != nil {
		g.Miss(unkeptTasks, err)
		return
	}
	g.progress("what keeps tasks")
	bounded, cancel := context.WithTimeout(ctx, walkWithin)
	defer cancel()
	sources, tasks, err := heapwalk.KeptBy(bounded, g.s, slices.Concat(l.Sources, slices.Collect(maps.Keys(threads))),
		failed)
	if err != nil {
		if ctx.Err() == nil {
			g.Miss(unkeptTasks, err)
		}
		return
	}
	if len(sources) == 0 && len(l.Sources) > 0 {
		g.Miss(unkeptTasks, "the waits have ended, or the collector has moved the objects")
	}
	g.KeptTasks, g.Sources = tasks, map[string]KeptSource{}
	for wait, kept := range sources {
		s := g.Sources[wait.Method]
		if id, blocks := threads[wait]; blocks && !kept.Source {
			continue // .NET completes the task
		} else if blocks {
			if s.Threads == nil {
				s.Threads = map[int]string{}
			}
			if s.Threads[id] = ""; kept.Path != nil {
				s.Threads[id] = SourceField(kept.Path)
			}
		}
		s.Waits++
		if kept.Path == nil {
			s.Missing++
		} else if s.Path == nil || len(kept.Path.Steps) < len(s.Path.Steps) {
			s.Path = kept.Path
		}
		g.Sources[wait.Method] = s
	}
}

// mostSourceThreads bounds the threads whose awaited tasks are followed.
const mostSourceThreads = 32

// sourceThreads are the threads that have waited in all looks for a task that is no async method's, and that no thread
// runs: perhaps the task of a TaskCompletionSource.
func (e *Evidence) sourceThreads() map[tasks.SourceWait]int {
	out := map[tasks.SourceWait]int{}
	threads := e.Threads()
	for i := range threads {
		t := threads[i].Last()
		own := OwnFrame(t.Frames)
		if len(out) == mostSourceThreads || !threads[i].Unmoved || !threads[i].Waits() || own == nil ||
			t.Wait == nil || t.Wait.Kind != snapshot.TaskWait || t.Wait.Owner != nil || t.Wait.Method != "" {
			continue
		}
		out[tasks.SourceWait{Method: own.Display, Task: t.Wait.Object}] = t.OSThreadID
	}
	return out
}
