package livetest

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"clrsnap/internal/testenv"
)

// EachAtWork runs a test with programs whose threads run nearly always: computing threads, and a web server under load.
// The programs and the test have one CPU together: so no thread of a program is on a CPU while the test looks.
func EachAtWork(t *testing.T, test func(t *testing.T, a *testenv.App)) {
	t.Helper()
	testenv.EachAspNet(t, func(t *testing.T, framework string) {
		t.Run("computing", func(t *testing.T) {
			a := testenv.Start(t, "spin", testenv.Options{Runtime: framework, Args: []string{"--threads", "4"}})
			testenv.OneCPU(t, a.PID)
			test(t, a)
			EndsWell(t, a)
		})
		t.Run("web", func(t *testing.T) {
			a := testenv.Start(t, "web", testenv.Options{Runtime: framework})
			testenv.OneCPU(t, a.PID)
			defer Visit(t, a)()
			test(t, a)
		})
	})
}

// Visit makes requests to the program "web" on some connections until the returned function is called.
func Visit(tb testing.TB, a *testenv.App) (end func()) {
	url := a.Ask("url")[0] + "/orders/17"
	stop := make(chan struct{})
	var visitors sync.WaitGroup
	for range 4 {
		visitors.Go(func() {
			client := http.Client{Transport: &http.Transport{}, Timeout: Hang}
			defer client.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := client.Get(url)
				if err != nil {
					tb.Error(err)
					return
				}
				body, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || r.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), `{"Id":17,`) {
					tb.Errorf("status %s, %q, %v", r.Status, body, err)
					return
				}
			}
		})
	}
	return func() {
		close(stop)
		visitors.Wait()
	}
}

// StopsNobody requires that one of two runs stops no thread: a thread that has a CPU at each look is stopped in the
// end, but not in each run.
func StopsNobody(t *testing.T, what string, run func() (stops int)) {
	t.Helper()
	for range 2 {
		n := run()
		if n == 0 {
			return
		}
		t.Logf("%s: %d stops", what, n)
	}
	t.Errorf("%s: each run stops threads", what)
}
