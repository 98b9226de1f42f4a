package why_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/bridge"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/why"
)

// TestLookStopsNobody: a look at many computing threads, or at a web server under load, stops no thread if the kernel
// tells registers.
func TestLookStopsNobody(t *testing.T) {
	testenv.EachAspNet(t, func(t *testing.T, framework string) {
		t.Run("computing", func(t *testing.T) {
			threads := max(50, 8*runtime.NumCPU())
			a := testenv.Start(t, "busy", testenv.Options{
				Runtime: framework, Args: []string{"--threads", strconv.Itoa(threads)},
			})
			stopsNobody(t, a)
			livetest.EndsWell(t, a)
		})
		t.Run("web", func(t *testing.T) {
			a := testenv.Start(t, "web", testenv.Options{Runtime: framework})
			defer load(t, a.Ask("url")[0]+"/orders/17")()
			stopsNobody(t, a)
		})
	})
}

func stopsNobody(t *testing.T, a *testenv.App) {
	t.Helper()
	if err := bridge.Session(livetest.Open(t, a, clrsnap.Options{})).Live.CanLook(); err != nil {
		layer.Lacking(t, err.Error())
	}
	testenv.UntilSeen(t, func() string {
		if r := look(t, a, why.Options{For: 2 * time.Second}); r.Stops > 0 {
			return fmt.Sprintf("a look without a stop: %d stops", r.Stops)
		}
		return ""
	})
}

// load makes requests on some connections until the returned function is called.
func load(t *testing.T, url string) (end func()) {
	var over sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		over.Go(func() {
			client := http.Client{Transport: &http.Transport{}, Timeout: livetest.Hang}
			defer client.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := client.Get(url)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		})
	}
	return func() {
		close(stop)
		over.Wait()
	}
}
