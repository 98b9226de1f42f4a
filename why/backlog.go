package why

import (
	"fmt"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/internal/tasks"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// backlog is the verdict on a growing queue of a channel whose reader has not gone on since the first look; nil: the
// queue is none, its reader goes on, or the reader is not known.
func (e *evidence) backlog(p *gather.Pile, path *snapshot.HeapPath) *profile.Verdict {
	if _, _, ok := e.Progressed(); !ok || path == nil || !p.IsQueue() || !throughChannel(path) {
		return nil
	}
	stood, types, all := e.stoodStill(), gather.OwnTypes(path), e.LastFlight().Tasks.Chains
	var stands *snapshot.TaskChain
	for i := range all {
		c := &all[i]
		if !readsChannel(c) || !gather.MemberOf(types, c.Frames[c.Reader].Method) {
			continue
		}
		if c.State != snapshot.TaskWaiting || c.WaitsFor == nil || stood[tasks.ChainKey(c)] < c.Count {
			return nil // a reader goes on
		}
		switch c.WaitsFor.Kind {
		case snapshot.AwaitsTimer, snapshot.AwaitsChannel: // the reader may pause, or read another channel
			return nil
		}
		stands = c
	}
	if stands == nil {
		return nil
	}
	span := phrase.Seconds(e.LastFlight().At - e.Flights[0].At)
	v := &profile.Verdict{
		Cause: profile.CauseStalled, Certainty: profile.Likely,
		Text: fmt.Sprintf("%s items wait in a channel, %s.%s %s takes the items, by its code, and has not gone on in "+
			"%s: it %s.", phrase.Number(int64(p.Count)), p.More(), phrase.KeptBy("The items are", path),
			phrase.Method(&stands.Frames[stands.Reader]), span, chainDoes(stands, stands.Reader)),
		Evidence: []profile.Evidence{
			{Text: "The reader has waited here in both looks:", Frames: stands.Frames},
			{Text: "The way to the items: " + phrase.Way(path) + "."},
		},
		Commands: []string{"clrsnap tasks " + e.Again()},
	}
	if own := sourceOf(stands); own != "" {
		e.addSource(v, own)
	}
	e.addHolder(v, stands.WaitsFor, gather.OwnFrame(stands.Frames))
	return v
}

// sourceOf is the innermost method of a chain that waits for a TaskCompletionSource; "": it waits for something else.
func sourceOf(c *snapshot.TaskChain) string {
	if c.WaitsFor.Kind != snapshot.AwaitsCompletion {
		return ""
	}
	return c.Frames[0].Display
}
