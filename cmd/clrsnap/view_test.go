package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"clrsnap/export"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// terminal runs clrsnap on a terminal of the given width, and returns the terminal's contents and the exit status.
func terminal(t *testing.T, columns uint16, args ...string) (string, int) {
	t.Helper()
	return terminalWith(t, columns, nil, args...)
}

// terminalWith is terminal with more in the environment.
func terminalWith(t *testing.T, columns uint16, env []string, args ...string) (string, int) {
	t.Helper()
	c, control := startOnTerminal(t, columns, env, args...)
	shown := allShown(c, control)
	return shown, c.ProcessState.ExitCode()
}

// allShown reads a terminal until the command ends.
func allShown(c *exec.Cmd, control io.Reader) string {
	shown, _ := io.ReadAll(bufio.NewReader(control)) // ends with EIO when the command ends
	_ = c.Wait()                                     // the status has the outcome
	return strings.ReplaceAll(string(shown), "\r\n", "\n")
}

// startOnTerminal starts clrsnap on a terminal, and returns the terminal's other side.
func startOnTerminal(t *testing.T, columns uint16, env []string, args ...string) (*exec.Cmd, *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	fd := int(control.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns}); err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("clrsnap", args...)
	c.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	c.Env = append(c.Env, env...)
	c.Stdout, c.Stderr = tty, tty
	err = c.Start()
	tty.Close()
	if err != nil {
		t.Fatal(err)
	}
	return c, control
}

// recordingFile writes a recording of a single method with a long name.
func recordingFile(t *testing.T) string {
	t.Helper()
	b := profile.NewBuilder(profile.Limits{})
	thread := b.Thread(profile.RecordedThread{OSThreadID: 1, Name: "main"})
	node := b.Child(0, b.Location(profile.Location{Function: b.Function(profile.Function{
		Kind: snapshot.Managed, Method: "Shop.Orders.Submit", Display: "Shop.Orders.Submit", Short: "Orders.Submit",
		Signature: "(System.Collections.Generic.Dictionary<string, Shop.Order>)", Module: "Shop",
	})}))
	b.Add(profile.Sample{Thread: thread, Node: node, Weight: 1e9})
	file := filepath.Join(t.TempDir(), "app.clrsnap")
	r := b.Recording()
	r.Processes = []snapshot.Process{{PID: 1}}
	if err := replaceFile(file, func(w io.Writer) error { return export.WriteRecording(w, r) }); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestViewTerminal: on a terminal, tables have colours and fit the width, and formats other than text are refused.
func TestViewTerminal(t *testing.T) {
	file := recordingFile(t)
	if got, status := terminal(t, 200, "view", file); status != 0 ||
		!strings.Contains(got, "\x1b[1;36mShop.Orders.Submit\x1b[0m(System.Collections") {
		t.Errorf("wide: status %d:\n%s", status, got)
	}
	if got, status := terminal(t, 80, "view", file); status != 0 ||
		!strings.Contains(got, "\x1b[1;36mShop.Orders.Submit\x1b[0m(…)") {
		t.Errorf("narrow: status %d:\n%s", status, got)
	}
	got, status := terminal(t, 80, "view", file, "-f", "pprof")
	if want := "clrsnap: a terminal cannot show pprof files: give a file with -o\n"; status != 2 || got != want {
		t.Errorf("pprof: status %d:\n%s", status, got)
	}
	if got, status := terminal(t, 80, "view", file, "-f", "folded"); status != 0 ||
		!strings.HasPrefix(got, "Shop.Orders.Submit(") {
		t.Errorf("folded: status %d:\n%s", status, got)
	}
}

// TestViewPipe: at a pipe, tables have long names cut in the middle, unless --full is given. Every other output has
// whole names.
func TestViewPipe(t *testing.T) {
	const arguments = "<System.Collections.Generic.Dictionary<string, Shop.Orders.Order>, System.Threading.Tasks.Task>"
	name := "Shop.Orders.Pipeline" + arguments + ".Submit"
	file := filepath.Join(t.TempDir(), "long.clrsnap")
	b := profile.NewBuilder(profile.Limits{})
	thread := b.Thread(profile.RecordedThread{OSThreadID: 1, Name: "main"})
	node := b.Child(0, b.Location(profile.Location{Function: b.Function(profile.Function{
		Kind: snapshot.Managed, Method: name, Display: name, Short: "Pipeline.Submit",
		Signature: "(System.Threading.CancellationToken)", Module: "Shop",
	})}))
	b.Add(profile.Sample{Thread: thread, Node: node, Weight: 1e9})
	r := b.Recording()
	r.Processes = []snapshot.Process{{PID: 1}}
	if err := replaceFile(file, func(w io.Writer) error { return export.WriteRecording(w, r) }); err != nil {
		t.Fatal(err)
	}
	good(t, "view", file).want(t, `  Shop\.Orders\.Pipeline<System\..*….*Task>\.Submit\(…\)  Shop$`)
	for line := range strings.Lines(good(t, "view", file).stdout) {
		if cells := strings.SplitN(line, "  Shop.", 2); len(cells) == 2 && utf8.RuneCountInString("Shop."+cells[1]) !=
			100+len("  Shop\n") {
			t.Errorf("%d columns: %s", utf8.RuneCountInString("Shop."+cells[1]), cells[1])
		}
	}
	whole := regexp.QuoteMeta(name + "(System.Threading.CancellationToken)")
	good(t, "view", file, "--full").want(t, whole+"  Shop$")
	good(t, "view", file, "-f", "folded").want(t, "^"+whole+` 1000000$`)
	for _, args := range [][]string{{"--json"}, {"-f", "speedscope"}} {
		if got := good(t, append([]string{"view", file}, args...)...).stdout; !strings.Contains(got, ">.Submit") ||
			strings.Contains(got, "…") {
			t.Errorf("%v: %s", args, got)
		}
	}
	good(t, "view", file, "--diff", file).want(t, `Pipeline<System\..*….*Task>\.Submit\(…\)`)
	good(t, "view", file, "--diff", file, "--full").want(t, whole)
}

// TestViewInterrupted: Ctrl-C works while a read from standard input blocks.
func TestViewInterrupted(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var errs strings.Builder
	c := exec.Command("clrsnap", "view", "-")
	c.Stdin, c.Stderr = out, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if _, err := io.WriteString(in, "{"); err != nil {
		t.Fatal(err)
	}
	awaitRead(t, in)
	if err := c.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	_, _ = io.WriteString(in, "}") // the command may have ended
	_ = c.Wait()                   // the status has the outcome
	if got := c.ProcessState.ExitCode(); got != 130 || !strings.Contains(errs.String(), "interrupted by SIGINT") {
		t.Errorf("status %d: %s", got, &errs)
	}
}

// awaitRead waits until a pipe is empty.
func awaitRead(t *testing.T, pipe *os.File) {
	t.Helper()
	for range 10000 {
		n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("nobody reads")
}
