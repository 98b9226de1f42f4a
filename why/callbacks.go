package why

import (
	"fmt"
	"slices"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Methods of .NET: the end of CancellationTokenRegistration.Dispose, and the call of the callbacks of a token
// (System.Private.CoreLib, CancellationTokenSource.cs).
const (
	waitsForCallback = "System.Threading.CancellationTokenSource+Registrations.WaitForCallbackToComplete"
	callsCallbacks   = "System.Threading.CancellationTokenSource.ExecuteCallbackHandlers"
)

// judgeCallbacks looks for a thread that disposes of a CancellationTokenRegistration while another thread runs the
// callback, which waits for a lock of the first thread. Dispose waits for the end of the callback, in short sleeps.
func judgeCallbacks(e *evidence) []profile.Verdict {
	if len(e.Looks) < 2 {
		return nil
	}
	in := func(method string) func(*snapshot.Thread) bool {
		return func(t *snapshot.Thread) bool {
			return slices.ContainsFunc(t.Frames, func(f snapshot.Frame) bool { return f.Method == method })
		}
	}
	threads := e.Threads()
	for i := range threads {
		closer := threads[i].Last()
		if !threads[i].All(in(waitsForCallback)) {
			continue
		}
		k := slices.IndexFunc(threads, func(w gather.Watched) bool {
			wait := w.Last().Wait
			return w.Unmoved && wait != nil && wait.Owner != nil && wait.Owner.OSThreadID == closer.OSThreadID &&
				w.All(in(callsCallbacks))
		})
		if k < 0 {
			continue
		}
		calls := threads[k].Last()
		refs := []snapshot.ThreadRef{gather.Ref(closer), gather.Ref(calls)}
		return []profile.Verdict{{
			Cause: profile.CauseDeadlock, Certainty: profile.Likely,
			Text: fmt.Sprintf("%s disposes of a CancellationTokenRegistration, in %s, and waits until the callback "+
				"has ended. %s, in %s, runs callbacks of a CancellationTokenSource and %s. Neither has gone on in %s: "+
				"a deadlock.",
				phrase.ThreadName(refs[0]), phrase.Method(gather.OwnFrame(closer.Frames)), phrase.ThreadName(refs[1]),
				phrase.Method(gather.OwnFrame(calls.Frames)), phrase.Doing(calls), phrase.Seconds(e.Span())),
			Evidence: []profile.Evidence{
				{Text: phrase.ThreadName(refs[0]) + ":", Frames: closer.Frames, Threads: refs[:1]},
				{Text: phrase.ThreadName(refs[1]) + ":", Frames: calls.Frames, Threads: refs[1:]},
			},
			Commands: []string{"clrsnap locks " + e.Again()},
		}}
	}
	return nil
}
