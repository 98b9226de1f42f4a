package why_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/why"
)

// TestGoneClients: streams that go on for gone clients are told, likely if more clients go during the look. Of requests
// that stand still, the requests for gone clients are counted.
func TestGoneClients(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		const many, gone, each = 80, 32, 4 // each: so many more clients go in each look
		begin := func(way string) (a *testenv.App, hangUp func(int)) {
			a = testenv.Start(t, "requests", testenv.Options{Runtime: runtime})
			url := a.Ask("urls")[0]
			var clients []context.CancelFunc
			for i := range many {
				ctx, cancel := context.WithCancel(context.Background())
				t.Cleanup(cancel)
				clients = append(clients, cancel)
				q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/%s/%d", url, way, i), nil)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					if r, err := http.DefaultClient.Do(q); err == nil {
						io.Copy(io.Discard, r.Body)
						r.Body.Close()
					}
				}()
			}
			livetest.Await(t, "requests have begun", func() bool { return len(a.Ask("begun")) == many })
			left := 0
			return a, func(n int) {
				if left+n > many {
					t.Fatal("all clients have gone")
				}
				for range n {
					clients[left]()
					left++
				}
				livetest.Await(t, "clients have gone", func() bool { return len(a.Ask("gone")) == left })
			}
		}

		a, hangUp := begin("left-stream")
		hangUp(gone)
		testenv.UntilSeen(t, func() string {
			seen, going := false, false
			r := look(t, a, why.Options{For: time.Second, NoAgent: true, Progress: func(doing string, _ float64) {
				if seen = seen || doing == "requests and async methods"; seen && !going &&
					doing != "requests and async methods" { // between the two looks at requests
					going = true
					hangUp(each)
				}
			}})
			says := fmt.Sprintf(" of %d requests for GET /left-stream/{id} are for clients that have gone. The "+
				"program goes on, in Requests.Hanging.", many)
			for i := range r.Verdicts {
				v := &r.Verdicts[i]
				if v.Cause != profile.CauseStalled || !strings.Contains(v.Text, says) {
					t.Errorf("%s, %s: %s", v.Cause, v.Certainty, shows(v))
				}
				if v.Certainty == profile.Likely &&
					strings.Contains(v.Text, fmt.Sprintf("%d more clients have gone meanwhile", each)) {
					return ""
				}
			}
			return "a verdict"
		})

		a, hangUp = begin("left")
		hangUp(many)
		testenv.UntilSeen(t, func() string { // young requests are not judged
			r := look(t, a, why.Options{For: time.Second, NoAgent: true})
			for i := range r.Verdicts {
				v := &r.Verdicts[i]
				if strings.Contains(v.Text, fmt.Sprintf("%d requests for GET /left/{id} stand still", many)) {
					checkVerdict(t, v, v.Cause == profile.CauseStalled && len(r.Verdicts) == 1,
						[]string{"All these requests are for clients that have gone."})
					return ""
				}
			}
			return "a verdict"
		})
	})
}
