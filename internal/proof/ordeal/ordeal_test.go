package ordeal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// ordealLimit is the time after which a program or a reader counts as stuck.
const ordealLimit = 2 * time.Minute

// ordeal is a program with a subscription.
type ordeal struct {
	pid    int
	sub    *events.Subscription
	attach bool                             // else it was started with the agent
	stop   func() (result string, exit int) // asks the program to end
	rounds func(worker string) int          // how many there were; after stop
	stderr func() string
}

// ordealRun is a program to run, and its subscription.
type ordealRun struct {
	app       string
	args, env []string
	opts      clrsnap.Options
	events    events.Options
}

// ordealWays are how the agent gets into a program.
var ordealWays = []struct {
	name  string
	begin func(*testing.T, ordealRun) *ordeal
}{{"started", startOrdeal}, {"attached", attachOrdeal}}

// attachOrdeal subscribes to a running program.
func attachOrdeal(t *testing.T, r ordealRun) *ordeal {
	t.Helper()
	a := testenv.Start(t, r.app, testenv.Options{Args: r.args, Env: r.env})
	return &ordeal{
		pid: a.PID, sub: subscribeOrdeal(t, livetest.Open(t, a, r.opts), r.events), attach: true,
		stop: a.Stop, rounds: func(worker string) int { return a.Loads[worker] }, stderr: a.Stderr,
	}
}

func subscribeOrdeal(t *testing.T, p *clrsnap.Process, o events.Options) *events.Subscription {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ordealLimit)
	defer cancel()
	sub, err := events.Subscribe(ctx, p, o)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// startOrdeal starts a program with the agent.
func startOrdeal(t *testing.T, r ordealRun) *ordeal {
	t.Helper()
	c := newOrdealCommand(t, r)
	ctx, cancel := context.WithTimeout(context.Background(), ordealLimit)
	defer cancel()
	sub, err := events.SubscribeCommand(ctx, c.Cmd, r.opts, r.events)
	t.Cleanup(c.kill)
	if err != nil {
		t.Fatal(err)
	}
	return &ordeal{
		pid: c.Process.Pid, sub: sub,
		stop: func() (string, int) { return c.stop(t) }, rounds: c.rounds, stderr: c.err.String,
	}
}

// ordealCommand is a program of testdata/apps, started without testenv.
type ordealCommand struct {
	*exec.Cmd
	stdin    io.WriteCloser
	out, err bytes.Buffer // to be read after the program's end
}

func newOrdealCommand(t *testing.T, r ordealRun) *ordealCommand {
	t.Helper()
	host := testenv.Kit(t).Host(testenv.DefaultRuntime)
	c := &ordealCommand{Cmd: exec.Command(host, append([]string{testenv.Build(t, r.app), "--stdin"}, r.args...)...)}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "DOTNET_") && !strings.HasPrefix(v, "CORECLR_") {
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(append(c.Env, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1"), r.env...)
	c.Stdout, c.Stderr = &c.out, &c.err
	var err error
	if c.stdin, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	return c
}

// stop asks the program to end, and waits.
func (c *ordealCommand) stop(t *testing.T) (result string, exit int) {
	t.Helper()
	c.stdin.Close()
	return c.wait(t)
}

// wait waits until the program has ended; the exit code is the shell's.
func (c *ordealCommand) wait(t *testing.T) (result string, exit int) {
	t.Helper()
	kill := time.AfterFunc(ordealLimit, func() { c.Process.Kill() })
	var bad *exec.ExitError
	if err := c.Wait(); err != nil && !errors.As(err, &bad) {
		t.Fatal(err)
	}
	if !kill.Stop() {
		t.Fatalf("the program does not end\n%s%s", &c.out, &c.err)
	}
	if lines := c.lines("RESULT "); len(lines) > 0 {
		result = lines[0]
	}
	status := c.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return result, 128 + int(status.Signal())
	}
	return result, status.ExitStatus()
}

// lines are the rests of the output lines that begin with a word.
func (c *ordealCommand) lines(begins string) (out []string) {
	for line := range strings.Lines(c.out.String()) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), begins); ok {
			out = append(out, rest)
		}
	}
	return out
}

func (c *ordealCommand) rounds(worker string) (sum int) {
	for _, n := range c.lines("LOAD " + worker + " ") {
		rounds, _ := strconv.Atoi(n)
		sum += rounds
	}
	return sum
}

// kill ends a program left behind by a failed test.
func (c *ordealCommand) kill() {
	if c.Process != nil && c.ProcessState == nil {
		c.Process.Kill()
		c.Wait()
	}
}

// endsWell stops the program and requires a good result.
func (o *ordeal) endsWell(t *testing.T) {
	t.Helper()
	if result, exit := o.stop(); result != "OK" || exit != 0 {
		t.Errorf("the target ended with result %q and exit code %d\n%s", result, exit, o.stderr())
	}
}

// take hands over notifications until use returns false.
func (o *ordeal) take(t *testing.T, use func(*events.Notification) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ordealLimit)
	defer cancel()
	for {
		n, err := o.sub.Next(ctx)
		if err != nil {
			t.Fatalf("no more notifications: %v\n%s", err, o.stderr())
		}
		if !use(n) {
			return
		}
	}
}

// takeFor hands over notifications for some time, from a program that always sends
// more.
func (o *ordeal) takeFor(t *testing.T, lasts time.Duration, use func(*events.Notification)) {
	t.Helper()
	end := time.Now().Add(lasts)
	o.take(t, func(n *events.Notification) bool {
		use(n)
		return time.Now().Before(end)
	})
}

// endsNotifying stops the program, hands its last notifications over to use,
// and requires that both end well.
func (o *ordeal) endsNotifying(t *testing.T, use func(*events.Notification)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ordealLimit)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for {
			n, err := o.sub.Next(ctx)
			if err != nil {
				ended <- err
				return
			}
			use(n)
		}
	}()
	o.endsWell(t)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the notifications of a program that has ended end with %v", err)
	}
}

// close ends the subscription.
func (o *ordeal) close(t *testing.T) {
	t.Helper()
	if err := o.sub.Close(); err != nil {
		t.Error(err)
	}
}

// everyCount requires that each chosen event was reported or counted as dropped, and
// that the test took each report.
func everyCount(t *testing.T, sub *events.Subscription, taken map[events.Event]int) {
	t.Helper()
	for e := events.ObjectAllocated; e <= events.RuntimeResumeFinished; e++ {
		s := sub.Stats(e)
		if s.Published != uint64(taken[e]) || s.Published+s.Dropped > s.Seen {
			t.Errorf("%v: %+v, taken %d", e, s, taken[e])
		}
	}
}

// stats writes the figures of the events that happened.
func stats(sub *events.Subscription) string {
	var b strings.Builder
	for e := events.ObjectAllocated; e <= events.RuntimeResumeFinished; e++ {
		if s := sub.Stats(e); s.Seen > 0 {
			fmt.Fprintf(&b, "  %v: %d seen, %d published, %d dropped, %d without a walk\n",
				e, s.Seen, s.Published, s.Dropped, s.Failed)
		}
	}
	return b.String()
}
