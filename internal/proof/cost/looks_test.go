package cost

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/observer"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv/role"
)

// BenchmarkLooksCost measures how many requests a web server under full load answers less while clrsnap stack shows
// its threads once a second, also as an earlier clrsnap does it, the file CLRSNAP_BASE. The floor uses as much CPU
// time for nothing.
//
//	make bench-server SERVER=LooksCost WAYS='nothing|looks.*|busy-5' CLRSNAP_BASE=/tmp/earlier/clrsnap
func BenchmarkLooksCost(b *testing.B) {
	a, s, head := startWeb(b)
	s.windows = longWindows
	ways := []*way{{key: "nothing", name: "nothing"}, busyWay(5), looksWay("looks", livetest.Command(b))}
	if base := os.Getenv("CLRSNAP_BASE"); base != "" {
		ways = append(ways, looksWay("looks-base", base))
	}
	ways = wanted(b, ways...)
	defer func() { // of the figures so far, should something fail
		reportWays(b, head+longWindows.compared(), webLoad.unit, ways)
	}()
	s.compareWays(b, ways)
	livetest.EndsWell(b, a)
}

// looksWay shows the stacks of a process once a second.
func looksWay(key, exe string) *way {
	return &way{
		key: key, floor: true, name: "`clrsnap stack` once a second (" + key + ")",
		start: func(b *testing.B, pid int) *observer.Observer { return observer.Observe(b, looker, pid, exe) },
	}
}

// looker runs clrsnap stack once a second. Its samples are the looks.
var looker = role.New("looks", func(a role.Args) error {
	pid, exe := a.Int(0), a[1]
	q := new(observer.Quality)
	looks := time.NewTicker(time.Second)
	defer looks.Stop()
	observer.Began()
	for ended := observer.UntilStdinEnds(); ended.Err() == nil; {
		c := exec.Command(exe, "stack", fmt.Sprint(pid))
		if err := c.Run(); err != nil {
			return err
		}
		q.Samples++
		select {
		case <-ended.Done():
		case <-looks.C:
		}
	}
	q.Memory = live.PeakMemory() // of this process: each look's own is BenchmarkManyThreads'
	return json.NewEncoder(os.Stdout).Encode(q)
})
