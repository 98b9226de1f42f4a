package why

import (
	"fmt"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// yielders is requests for one path that give up their thread in one method, to go on at once.
type yielders struct {
	group    *snapshot.RequestGroup
	requests map[string]bool // by id; true: the request has given up its thread
}

// yieldersOf groups the requests that run, or wait for a thread of the pool only.
func yieldersOf(r *snapshot.Requests) map[string]*yielders {
	out := map[string]*yielders{}
	for i := range r.Requests {
		g := &r.Requests[i]
		own := gather.OwnFrame(g.Doing.Frames)
		yields := g.Doing.WaitsFor != nil && g.Doing.WaitsFor.Kind == snapshot.AwaitsYield
		if own == nil || !yields && g.Doing.State != snapshot.TaskRunning {
			continue
		}
		key := g.Method + "\x00" + g.Path + "\x00" + own.Module + "!" + own.Method
		y := out[key]
		if y == nil {
			y = &yielders{group: g, requests: map[string]bool{}}
			out[key] = y
		}
		for k := range g.Requests {
			y.requests[g.Requests[k].ID] = yields
		}
		if yields {
			y.group = g
		}
	}
	return out
}

// judgeYields looks for requests that give up their thread again and again, and never end: a loop over many threads,
// which waits for something by asking all the time. Work that gives up its thread now and then is seen at work.
func judgeYields(e *evidence) []profile.Verdict {
	before, after, ok := e.Progressed()
	if !ok {
		return nil
	}
	then := yieldersOf(before.Requests)
	var best *yielders
	most := gather.FewRequests - 1
	for key, y := range yieldersOf(after.Requests) {
		was := then[key]
		if was == nil {
			continue
		}
		both, suspended := 0, 0
		for id, yields := range y.requests {
			if yielded, there := was.requests[id]; there {
				both++
				if yields && yielded {
					suspended++
				}
			}
		}
		if both > most && both == len(was.requests) && 2*suspended >= both {
			most, best = both, y
		}
	}
	if best == nil {
		return nil
	}
	first, last, _ := e.Delta()
	used := ""
	if first != nil && last != nil && last.At > first.At && last.CPU >= first.CPU {
		used = fmt.Sprintf(" The process used %.2f CPUs meanwhile.",
			gather.AtOnce(int64(last.CPU-first.CPU), last.At-first.At))
	}
	return []profile.Verdict{{
		Cause: profile.CauseCPU, Certainty: profile.Likely,
		Text: fmt.Sprintf("%d requests for %s %s go on again and again in %s, and none has ended in %s: in both looks "+
			"most had just given up the thread, to get another one. Most likely a loop waits for something by asking "+
			"all the time.%s", most, best.group.Method, best.group.Path,
			gather.Place(best.group.Doing.Frames),
			phrase.Seconds(after.At-before.At), used),
		Evidence: []profile.Evidence{{Text: "The requests are here:", Frames: best.group.Doing.Frames}},
		Commands: []string{"clrsnap requests " + e.Again(),
			fmt.Sprintf("clrsnap record %d --mode cpu -d 10s", e.Process.PID)},
	}}
}
