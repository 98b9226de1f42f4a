package why_test

import (
	"strings"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/why"
)

// TestEndsOfWaits: async methods that wait for a permit of a pool, or for a TaskCompletionSource. The verdict says who
// could end the wait, or that nobody could. Waits that end are no verdict.
func TestEndsOfWaits(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			of    string
			cause profile.Cause // "": nothing is wrong
			says  []string
		}{
			{"leases-lost", profile.CauseLockContention, []string{
				"16 async methods wait for a permit of SemaphoreSlim", "(Carts.free)",
				"All 4 permits are taken. Permits are taken in ", "Depot.Carts.RentAsync",
				"given back in Depot.Carts.Return",
				"Nobody is seen who would give one back",
			}},
			{"leases-lost-threads", profile.CauseLockContention, []string{
				"6 threads wait for a permit of SemaphoreSlim",
				"All 4 permits are taken. Permits are taken in Depot.Carts.Rent",
				"given back in Depot.Carts.Return", "Nobody is seen who would give one back",
			}},
			{"leases-held", "", nil},
			{"leases-twice", profile.CauseLockContention, []string{
				"4 async methods wait", "But Depot.Leases.Haul", "takes permits in several places",
			}},
			{"turns", "", nil},
			{"unanswered", profile.CauseStalled, []string{
				"9 async methods wait for a TaskCompletionSource, in Depot.Sources.Ask",
				"kept by field Depot.Answers.waiting", "Depot.Answers.ReadAsync",
				"which completed such sources, by its code, has ended with System.FormatException: no such number",
				"the task is kept by field Depot.Answers.reading",
			}},
			{"forgotten", profile.CauseStalled, []string{
				"12 async methods wait for a TaskCompletionSource, in Depot.Sources.Await", "nobody can complete it",
			}},
			{"news", "", nil},
			{"rows-lost", profile.CauseLockContention, []string{
				"9 async methods wait for a permit of SemaphoreSlim", "(Rows.doors)", "of its 5 permits are lost",
				"iterators of Depot.Rows.All",
			}},
			{"rows-held", "", nil},
			{"rows-lost-ready", profile.CauseLockContention, []string{
				"9 async methods wait for a permit of SemaphoreSlim", "(Rows.doors)", "of its 5 permits are lost",
				"iterators of Depot.Rows.All",
			}},
			{"rows-held-ready", "", nil},
			{"rows-held-plain", "", nil},
			{"rows-held-carts", "", nil},
			{"echo", profile.CauseStalled, []string{
				"7 async methods wait for a TaskCompletionSource, in Depot.Echo.Call",
				"kept by static field Depot.Echo.calls", "echo (", "completes such sources, by the code, and waits for",
				"and nobody else is seen who would complete any of them",
			}},
			{"echo-idle", "", nil},
			{"actors-crossed", profile.CauseStalled, []string{
				"async methods wait for a TaskCompletionSource, in Depot.Department.AskAsync",
				"completes such sources, by the code, and waits for a TaskCompletionSource",
				"and nobody else is seen who would complete any of them",
			}},
			{"actors-prompt", "", nil},
			{"belts-idle", "", nil},
		} {
			for _, compile := range []testenv.Options{{}, {Compile: livetest.RuntimeAsync}} {
				name := tt.of
				if compile.Compile != nil {
					if name += " runtime async"; runtime != testenv.NewestRuntime || tt.of == "echo" {
						continue // echo has not been tried there yet
					}
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					compile.Runtime, compile.Args = runtime, []string{"--of", tt.of}
					how := profile.Likely
					if strings.HasPrefix(tt.of, "actors") {
						how = profile.Possible
					}
					tells(t, compile, time.Second, tt.cause, how, tt.says)
				})
			}
		}
	})
}

// tells starts the program stalls and looks until a verdict is there. The only verdict must have the cause, the
// certainty ("": any) and the texts. Cause "": there is no verdict.
func tells(
	t *testing.T, o testenv.Options, span time.Duration, cause profile.Cause, how profile.Certainty, says []string,
) {
	t.Helper()
	a := testenv.Start(t, "stalls", o)
	testenv.UntilSeen(t, func() string {
		r := look(t, a, why.Options{For: span, NoAgent: true})
		if cause != "" && len(r.Verdicts) == 0 {
			return "a verdict"
		}
		for i := range r.Verdicts {
			v := &r.Verdicts[i]
			checkVerdict(t, v, v.Cause == cause && (how == "" || v.Certainty == how) && i == 0, says)
		}
		return ""
	})
}

// TestPiles: threads that become more and more, and a queue that nobody empties, are told with their place; threads
// and elements that come and go are not.
func TestPiles(t *testing.T) {
	why.SetLeastAge(t, time.Second)
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			of    string
			cause profile.Cause // "": nothing is wrong
			says  []string
		}{
			{"threads-pile", profile.CauseStalled, []string{
				"Threads pile up:", "threads wait in Depot.Crowd", "has gone on", "waits for ManualResetEventSlim",
			}},
			{"threads-left", profile.CauseStalled, []string{
				"Threads pile up:", "threads wait in Depot.Crowd", "before have not gone on",
			}},
			{"threads-shift", "", nil},
			{"queue-grows", profile.CauseHeapGrowth, []string{
				"ConcurrentQueue<string> has", "kept by static field Depot.Queues.letters", "Depot.Queues.Reads",
				"takes items from a channel, perhaps this one, and waits for",
			}},
			{"queue-flows", "", nil},
			{"desk-stands", profile.CauseStalled, []string{
				"items wait in a channel", "field Depot.Desks.questions", "Depot.Desks.Answers",
				"takes the items, by its code, and has not gone on in",
				"waits for a TaskCompletionSource, in Depot.Desks.Ask",
			}},
			{"gate-held", profile.CauseStalled, []string{
				"async methods wait for a permit of a SemaphoreSlim, in Depot.Gate.Visit", "and become more",
				"The only permit of Gate.gate is held, most likely, by suspended Depot.Gate.Hold",
				"waits for a TaskCompletionSource",
			}},
			{"queue-unsent", profile.CauseHeapGrowth, []string{
				"ConcurrentQueue<string> has", "kept by static field Depot.Unsent.cards",
				"Depot.Unsent.Send{async}, a method of the class that keeps it, has ended with " +
					"System.IO.IOException: the office is closed",
			}},
		} {
			t.Run(tt.of, func(t *testing.T) {
				o := testenv.Options{Runtime: runtime, Args: []string{"--of", tt.of}}
				tells(t, o, 2*time.Second, tt.cause, "", tt.says)
			})
		}
	})
}
