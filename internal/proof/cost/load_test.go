package cost

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A load is wrk, asking a web server as fast as the server answers, from one
// thread.
type load struct {
	cmd     *exec.Cmd
	started time.Time
	before  int64 // requests that the program had counted at the start
	out     bytes.Buffer
}

const (
	connections = 8
	loadTime    = 2 * time.Minute // then wrk ends by itself
)

func startLoad(b *testing.B, s *subject) *load {
	b.Helper()
	before, _ := s.ask()
	seconds := fmt.Sprintf("%.0fs", loadTime.Seconds())
	l := &load{before: before, started: time.Now()}
	// Even a very late answer counts.
	l.cmd = exec.Command("wrk", "--threads", "1", "--connections", strconv.Itoa(connections),
		"--duration", seconds, "--timeout", seconds, s.url)
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // or wrk would go on without the test
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.out
	if err := l.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.cmd.Process.Kill() }) // fails if wrk has ended
	return l
}

var wrkRequests = regexp.MustCompile(`(\d+) requests in `)

// end ends wrk and returns the number of answered requests. Each answer must be
// good.
func (l *load) end(b *testing.B) int64 {
	b.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGINT); err != nil {
		b.Fatal(err)
	}
	err := l.cmd.Wait()
	out := l.out.String()
	m := wrkRequests.FindStringSubmatch(out)
	if err != nil || m == nil || strings.Contains(out, "Socket errors") || strings.Contains(out, "Non-2xx") {
		b.Fatalf("wrk: %v\n%s", err, out)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
