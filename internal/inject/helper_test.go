package inject

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/role"
)

const nobody = 65534

// attacher attaches to a process and hangs up.
var attacher = role.New("attacher", func(args role.Args) error {
	library, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	a, err := attachPID(context.Background(), args.Int(0), library)
	if err != nil {
		return err
	}
	c, err := tell(a)
	if err != nil {
		return err
	}
	return c.Detach()
})

// unpacker unpacks a library for a process, and waits to be killed.
var unpacker = role.New("unpacker", func(args role.Args) error {
	library, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	dir, err := procfs.Open(args.Int(0))
	if err != nil {
		return err
	}
	f, err := unpack(dir, library)
	if err != nil {
		return err
	}
	fmt.Println(f.path)
	time.Sleep(time.Hour)
	return nil
})

func TestMain(m *testing.M) {
	role.Play()
	status := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(status)
}

// public is a role that anybody can play, for a process, with the agent's library.
func public(t *testing.T, what *role.Role, pid int) *exec.Cmd {
	t.Helper()
	dir := publicDir(t)
	library := dir + "/agent.so"
	if out, err := exec.Command("cp", libraryFile(t), library).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := what.Command(pid, library)
	cmd.Path, cmd.Dir = dir+"/test", "/"
	if err := role.Copy(cmd.Path); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// asNobody changes a command to run as a user without rights.
func asNobody(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	needRoot(t)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root can make namespaces and run programs as others")
	}
}

// publicDir is a new directory that everybody can read, with a short name.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "inject")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// nobodysDir is a new directory of the user without rights.
func nobodysDir(t *testing.T) string {
	t.Helper()
	dir := publicDir(t)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return dir
}

// built is the agent, built from its present sources.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func libraryFile(t *testing.T) string {
	t.Helper()
	cc := testenv.CC(t)
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "inject"); built.err == nil {
			built.err = agent.Build(cc, "../../agent", built.dir+"/agent.so")
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir + "/agent.so"
}

func library(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(libraryFile(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startIn starts a program with a new temporary directory, so the test finds files left behind
// there.
func startIn(t *testing.T, o testenv.Options) (a *testenv.App, tmp string) {
	t.Helper()
	tmp = publicDir(t)
	o.Env = append(o.Env, "TMPDIR="+tmp)
	return testenv.Start(t, "idle", o), tmp
}

// left fails if a folder of ours is in dir.
func left(t *testing.T, dir string) {
	t.Helper()
	if found := folders(t, dir); len(found) > 0 {
		t.Errorf("left behind in %s: %v", dir, found)
	}
}

func folders(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), folderPrefix) {
			out = append(out, e.Name())
		}
	}
	return out
}

// attachPID attaches to process pid.
func attachPID(ctx context.Context, pid int, library []byte) (*Agent, error) {
	p, err := live.Open(pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return attach(ctx, p.Dir(), library)
}

// dirOf holds on to process pid until the end of the test.
func dirOf(t *testing.T, pid int) procfs.Dir {
	t.Helper()
	dir, err := procfs.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.Close)
	return dir
}

// goodAttach attaches to a program and requires a working agent.
func goodAttach(t *testing.T, pid int, library []byte) *agent.Conn {
	t.Helper()
	a, err := attachPID(t.Context(), pid, library)
	if err != nil {
		t.Fatal(err)
	}
	if a.PID != pid {
		t.Errorf("the agent is one of process %d, not of %d", a.PID, pid)
	}
	return begin(t, a)
}

// begin tells an agent to begin.
func begin(t *testing.T, a *Agent) *agent.Conn {
	t.Helper()
	c, err := tell(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func tell(a *Agent) (*agent.Conn, error) {
	c, err := agent.NewConn(a.Conn)
	if err != nil {
		return nil, err
	}
	if _, err = c.Begin(agent.Subscription{}); err == nil {
		err = a.Loaded()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// badAttach requires that attaching fails as expected, with one sentence.
func badAttach(t *testing.T, pid int, library []byte, want error, words ...string) {
	t.Helper()
	a, err := attachPID(t.Context(), pid, library)
	if err == nil {
		a.Conn.Close()
		t.Fatal("an agent has connected")
	}
	if !errors.Is(err, want) {
		t.Errorf("%v: not %q", err, want)
	}
	isSentence(t, err.Error(), append(words, strconv.Itoa(pid))...)
}

func isSentence(t *testing.T, s string, words ...string) {
	t.Helper()
	t.Log(s)
	if strings.ContainsAny(s, "\n") || len(s) > 600 {
		t.Errorf("not a sentence: %q", s)
	}
	for _, w := range words {
		if !strings.Contains(s, w) {
			t.Errorf("%q does not mention %q", s, w)
		}
	}
}

func endsWell(t *testing.T, a *testenv.App) {
	t.Helper()
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
	}
}

// mapped is the path of an agent's mapped library in a process.
func mapped(t *testing.T, pid int) string {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if i := strings.IndexByte(line, '/'); i >= 0 && strings.Contains(line, "/"+folderPrefix) {
			return strings.TrimSpace(line[i:])
		}
	}
	return ""
}

// A special is a .NET program that testenv cannot start: a program of another user, or in its own
// namespaces.
type special struct {
	pid   int
	stdin io.Closer
	cmd   *exec.Cmd
}

// startSpecial starts cmd and waits until the program is ready.
func startSpecial(t *testing.T, cmd *exec.Cmd) *special {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &special{pid: cmd.Process.Pid, stdin: stdin, cmd: cmd}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill() // fails if the program has ended
		cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if lines.Text() == "READY" {
			go io.Copy(io.Discard, stdout)
			return s
		}
	}
	t.Fatalf("the program ended before it was ready (%v)", lines.Err())
	return nil
}

func (s *special) endsWell(t *testing.T) {
	t.Helper()
	s.stdin.Close()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the target ended with %v", err)
	}
}

// nobodysProgram is a .NET program that the user without rights can run.
func nobodysProgram(t *testing.T, tmp string) *exec.Cmd {
	t.Helper()
	dir := publicDir(t)
	host := testenv.Kit(t).Host(testenv.DefaultRuntime)
	for _, args := range [][]string{{"-rL", filepath.Dir(host), dir + "/net"},
		{testenv.Build(t, "idle"), dir + "/idle.dll"}} {
		if out, err := exec.Command("cp", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	cmd := asNobody(t,
		exec.Command(dir+"/net/"+filepath.Base(host), dir+"/idle.dll", "--stdin", "--max-seconds", "120"))
	cmd.Dir = "/"
	cmd.Env = []string{"DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1", "TMPDIR=" + tmp}
	return cmd
}

// namespaceProgram is a .NET program in its own mount, PID and network namespaces. A shell script
// prepares the namespaces.
func namespaceProgram(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	needRoot(t)
	host := testenv.Kit(t).Host(testenv.DefaultRuntime)
	cmd := exec.Command("/bin/sh", "-ec", "mount -t proc none /proc\n"+script+"\n"+`exec "$@"`, "sh", host,
		testenv.Build(t, "idle"), "--stdin", "--max-seconds", "120")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1"}
	// The mounts of the script stay in the namespace.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
