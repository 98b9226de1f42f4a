package why

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"
)

func TestMain(m *testing.M) {
	// Programs are tried side by side: they mostly wait, and so does clrsnap.
	if err := flag.Set("test.parallel", "2"); err != nil {
		panic(err)
	}
	role.Main(m)
}

var commandFlag = flag.String("clrsnap", "", "the `file` of the command to try, instead of the one of these sources")

// TestWhy: each disease gets its name, and healthy programs get no verdict.
func TestWhy(t *testing.T) {
	layer.Quiet(t)
	c := command(*commandFlag)
	if c == "" {
		c = command(livetest.Command(t))
	}
	for _, runtime := range testenv.Supported() {
		for _, d := range diseases {
			if d.short || layer.Size(false, true) {
				side(t, "sick/"+d.name+"-"+testenv.Name(runtime), func(t *testing.T) { d.try(t, c, runtime) })
			}
		}
	}
	for _, p := range layer.Size(shortHealthy, healthy()) {
		side(t, "healthy/"+p.name(), func(t *testing.T) { p.try(t, c) })
	}
	if layer.Size(false, true) {
		side(t, "healthy/compiler", func(t *testing.T) { tryCompiler(t, c) })
	}
}

// side runs a test side by side with others.
func side(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

// A verdict is a verdict of "why --json".
type verdict struct {
	Cause     string
	Certainty string
	Text      string
	Evidence  []struct {
		Text    string
		Frames  json.RawMessage
		Threads json.RawMessage
	}

	raw string // the whole JSON text
}

func (v *verdict) String() string { return fmt.Sprintf("%s, %s: %s", v.Cause, v.Certainty, v.Text) }

// shows is the text that a reader sees, with the evidence.
func (v *verdict) shows() string {
	var b strings.Builder
	b.WriteString(v.Text)
	for _, e := range v.Evidence {
		fmt.Fprintf(&b, "\n%s\n%s", e.Text, e.Frames)
	}
	return b.String()
}

var (
	causes = []string{
		"deadlock", "lock-contention", "thread-pool-starvation", "remote-call", "cpu", "gc-pressure", "heap-growth",
		"exceptions", "suspension", "finalizer", "throttled", "memory-pressure", "descriptors", "stopped", "debugger",
		"stalled", "shutdown", "native-growth", "blocked-io",
	}
	certainties = []string{"possible", "likely", "certain"}
)

// A way is how the command is run.
type way struct {
	name string
	args []string
}

var (
	plain   = way{name: "plain"}
	again   = way{name: "again"}
	noAgent = way{"no-agent", []string{"--no-agent"}}
)

// tooLong is a time that no look at a program may take, however stuck the program is, and whatever else runs here.
const tooLong = time.Minute

// A command is the file of a clrsnap.
type command string

// run runs the command, and returns its stdout and its exit status.
func (c command) run(t *testing.T, args ...string) (stdout []byte, status int) {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command(string(c), args...)
	cmd.Stderr = &errs
	killer := time.AfterFunc(tooLong, func() { cmd.Process.Kill() })
	out, err := cmd.Output()
	if !killer.Stop() {
		t.Errorf("clrsnap %s: not done after %v\n%s", strings.Join(args, " "), tooLong, errs.Bytes())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if status = cmd.ProcessState.ExitCode(); status != 0 && status != 3 {
		t.Logf("clrsnap %s: exit status %d: %s", strings.Join(args, " "), status, errs.Bytes())
	}
	return out, status
}

// why returns the verdicts on a program. Each verdict keeps to the contract of docs/json.md. The look must be complete,
// unless the way leaves something out, or the program is mute: held up so that it does not answer.
func (c command) why(t *testing.T, pid int, w way, mute bool) []verdict {
	t.Helper()
	out, status := c.run(t, append([]string{"why", "--json", strconv.Itoa(pid)}, w.args...)...)
	if status != 0 {
		t.Errorf("why --json (%s): exit status %d", w.name, status)
	}
	var report struct {
		Verdicts []json.RawMessage
		Missing  []string
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("why --json (%s): %v\n%s", w.name, err, out)
	}
	if len(report.Missing) > len(w.args) && !mute {
		t.Errorf("why --json (%s): not looked at: %q", w.name, report.Missing)
	}
	if report.Verdicts == nil {
		t.Errorf("why --json (%s) has no list of verdicts:\n%s", w.name, out)
	}
	var all []verdict
	for _, raw := range report.Verdicts {
		v := verdict{raw: string(raw)}
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatalf("why --json (%s): %v\n%s", w.name, err, raw)
		}
		if !slices.Contains(causes, v.Cause) || !slices.Contains(certainties, v.Certainty) || v.Text == "" {
			t.Errorf("why --json (%s): not a verdict: %s", w.name, raw)
		}
		all = append(all, v)
	}
	return all
}

var figure = regexp.MustCompile(`[0-9]`)

// judge holds the verdicts on a sick program against its disease.
func (d *disease) judge(t *testing.T, w way, verdicts []verdict) {
	t.Helper()
	if len(verdicts) == 0 {
		t.Errorf("%s (%s): no verdict", d.name, w.name)
		return
	}
	first := &verdicts[0]
	t.Logf("FOUND | %s | %s | %s | %s | %s", d.name, w.name, first.Cause, first.Certainty, first.Text)
	if !slices.Contains(d.causes, first.Cause) {
		t.Errorf("%s (%s): the first verdict is %v", d.name, w.name, first)
	}
	if first.Certainty == "possible" {
		t.Errorf("%s (%s): no more than possible: %v", d.name, w.name, first)
	}
	for _, name := range d.own {
		if shown := first.shows(); !regexp.MustCompile(name).MatchString(shown) {
			t.Errorf("%s (%s): %s is not named by %s", d.name, w.name, name, shown)
		}
	}
	if !figure.MatchString(first.Text) && !d.noFigure {
		t.Errorf("%s (%s): no figure in %q", d.name, w.name, first.Text)
	}
	for i := range verdicts[1:] {
		if v := &verdicts[1+i]; !slices.Contains(d.beside, v.Cause) {
			t.Errorf("%s (%s): a false verdict beside: %v\n%s", d.name, w.name, v, v.raw)
		} else {
			t.Logf("BESIDE | %s | %s | %v", d.name, w.name, v)
		}
	}
}

// locks returns the exit status of "clrsnap locks": 3 for a program with a deadlock.
func (c command) locks(t *testing.T, pid int) int {
	t.Helper()
	out, status := c.run(t, "locks", "--json", strconv.Itoa(pid))
	var report struct{ Locks, Deadlocks []json.RawMessage }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Errorf("locks --json: %v\n%s", err, out)
	}
	if (status == 3) != (len(report.Deadlocks) > 0) {
		t.Errorf("locks: exit status %d with %d deadlocks", status, len(report.Deadlocks))
	}
	return status
}
