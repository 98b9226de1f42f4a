package livetest

import (
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"clrsnap/internal/testenv"
)

// EachAtWork runs a test with programs whose threads run nearly always: many computing threads, and a web server under
// load.
func EachAtWork(t *testing.T, test func(t *testing.T, a *testenv.App)) {
	t.Helper()
	testenv.EachAspNet(t, func(t *testing.T, framework string) {
		t.Run("computing", func(t *testing.T) {
			threads := max(50, 8*runtime.NumCPU())
			a := testenv.Start(t, "busy", testenv.Options{
				Runtime: framework, Args: []string{"--threads", strconv.Itoa(threads)},
			})
			test(t, a)
			EndsWell(t, a)
		})
		t.Run("web", func(t *testing.T) {
			a := testenv.Start(t, "web", testenv.Options{Runtime: framework})
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
