package record

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap/events"
	"clrsnap/internal/inject"
	"clrsnap/internal/link"
	"clrsnap/internal/priority"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// TestForger: an agent that reports as fast as possible takes neither a CPU of ours nor memory without
// bound, and the recording tells of the agent.
func TestForger(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	cmd := forger.Command()
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{theirs}, os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	theirs.Close()

	o := Options{Events: events.Options{Monitor: events.MonitorExceptions}}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	p, err := session.Open(t.Context(), cmd.Process.Pid, session.Options{NativeOnly: true})
	if err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
	}
	defer p.Close()
	connected := &inject.Agent{Conn: conn.(*net.UnixConn), PID: cmd.Process.Pid}
	forged, err := link.New(connected, subscribed.Request(&o.Events, 0))
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(o)
	r.start = live.Monotonic()
	np := r.events.met(cmd.Process.Pid, forged)
	np.rp = r.add(p)
	// On a shared machine the forger is too slow for the whole share.
	np.pace.Share = readShare / 6
	var used, reading, passed time.Duration
	most := 0
	priority.RunHigh(func() {
		begin, cpu := time.Now(), live.OwnCPU()
		few := func() bool { return r.events.counts[profile.Exception].samples < 1000 }
		for time.Since(begin) < 3*time.Second || few() && time.Since(begin) < testenv.Hang {
			r.now = live.Monotonic()
			before := live.ThreadCPU()
			r.events.drain()
			reading += live.ThreadCPU() - before
			most = max(most, np.pending, len(np.thrown))
			time.Sleep(drainFirst)
		}
		used, passed = live.OwnCPU()-cpu, time.Since(begin)
		r.events.finish(t.Context())
	})
	if len(np.thrown) > 0 || np.pending != 0 || most > maxThrown {
		t.Errorf("%d exceptions of %d threads wait, of %d at most", np.pending, len(np.thrown), most)
	}
	n := r.events.counts[profile.Exception].samples
	t.Logf("%d exceptions were reported within %v, and read with %v", n, passed.Round(time.Millisecond),
		used.Round(time.Millisecond))
	if share := float64(reading) / float64(passed); share > 2*np.pace.Share {
		t.Errorf("samples were made of them with %.0f %% of a CPU, of which they have %.0f %%",
			100*share, 100*np.pace.Share)
	}
	// Other threads collect the garbage.
	if share := float64(used) / float64(passed); share > 1 {
		t.Errorf("%.0f %% of a CPU", 100*share)
	}
	if n < 1000 {
		t.Errorf("only %d exceptions were read of", n)
	}
	if notes := strings.Join(r.notes, " "); !strings.Contains(notes, "more events than clrsnap reads at once") {
		t.Errorf("the recording says %q", notes)
	}
}
