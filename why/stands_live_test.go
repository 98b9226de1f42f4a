package why_test

import (
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// TestStands: clients that nobody accepts, callbacks that wait or pile up, and a thread behind a holder
// that stands are told, and producers and consumers that wait for one another. Clients that are served, slow callbacks,
// a thread that stands by and idle consumers are not.
func TestStands(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			of    string
			cause profile.Cause // "": nothing is wrong
			how   profile.Certainty
			says  []string
		}{
			{"counter-closed", profile.CauseStalled, profile.Likely, []string{
				"Nobody accepts connections to 127.0.0.1:", "6 clients have connected and wait",
			}},
			{"counter-open", "", "", nil},
			{"recall-crossed", profile.CauseDeadlock, profile.Likely, []string{
				"closer (", "disposes of a CancellationTokenRegistration, in Depot.Recall.Close", "recaller (",
				"runs callbacks of a CancellationTokenSource and waits to enter Monitor of Recall.gate",
			}},
			{"recall-slow", "", "", nil},
			{"spin-left", profile.CauseLockContention, profile.Likely, []string{
				"3 threads spin, such as entrance-", "(Spins.map), in Depot.Spins.Enter",
				"No other thread is in code of Depot.Spins",
			}},
			{"spin-held", "", "", nil},
			{"ring-full", profile.CauseStalled, "", []string{
				"2 threads wait for room in a full queue", "tank (", "filter (", "in Depot.Ring.Carry",
				"these threads wait for one another", "1 more thread waits for room as well, such as maltster (",
			}},
			{"ring-own", profile.CauseStalled, profile.Likely, []string{
				"tank (", "adds to the queue that only the thread takes from", "such as maltster (",
			}},
			{"ring-slow", "", "", nil},
			{"rail-crossed", profile.CauseStalled, profile.Possible, []string{
				"5 threads wait in Monitor.Wait of Rail.rail", "3 in Depot.Rail.Hang", "2 in Depot.Rail.Take",
			}},
			{"rail-idle", "", "", nil},
			{"rounds-pile", profile.CausePoolStarvation, profile.Likely, []string{
				"callbacks of timers run at the same time, in Depot.Rounds.Walk", "none has gone on",
			}},
			{"rounds-pace", "", "", nil},
			{"session-own", profile.CauseDeadlock, profile.Certain, []string{
				"3 async methods wait for their own end, each in Depot.Session.", "None has gone on in",
			}},
			{"session-awaited", "", "", nil},
			{"desk-deaf", profile.CauseLockContention, profile.Possible, []string{
				"1 thread has waited for Desk.desk", "in Depot.Desk.Sit", "no thread has got it",
				"The holder waits for input or output", "in Depot.Desk.Ask",
			}},
			{"desk-standby", "", "", nil},
		} {
			t.Run(tt.of, func(t *testing.T) {
				t.Parallel()
				o := testenv.Options{Runtime: runtime, Args: []string{"--of", tt.of}}
				tells(t, o, 2*time.Second, tt.cause, tt.how, tt.says)
			})
		}
	})
}
