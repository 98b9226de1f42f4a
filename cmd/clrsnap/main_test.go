package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/priority/early"
	"clrsnap/internal/testenv/role"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "update the expectations in testdata/script")

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "clrsnap" {
		calm()
	}
	role.Play()
	testscript.Main(m, map[string]func(){"clrsnap": main, "slowfs": slowFS, "victim": victim})
}

// TestScripts runs the command as a user does; no script needs .NET.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": cmdStatus, "zombie": cmdZombie, "start": cmdStart, "nobody": cmdNobody,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "nobody":
				return os.Geteuid() == 0 && asNobody("true").Run() == nil, nil
			case "kernelthread":
				comm, err := os.ReadFile("/proc/2/comm")
				return err == nil && string(comm) == "kthreadd\n", nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// cmdStatus is "status N command…": the command must end with exactly this status. The command's output is for stdout
// and stderr, as after exec.
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if ee, ok := err.(*exec.ExitError); ok {
		got = ee.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
}

// cmdZombie is "zombie VAR": puts the id of an ended process into VAR. The process is not reaped before the end of the
// script.
func cmdZombie(ts *testscript.TestScript, _ bool, args []string) {
	c := exec.Command("true")
	ts.Check(c.Start())
	ts.Defer(func() { _ = c.Wait() })
	for range 10_000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
		ts.Check(err)
		if strings.Contains(string(stat), ") Z ") {
			ts.Setenv(args[0], strconv.Itoa(c.Process.Pid))
			return
		}
		time.Sleep(time.Millisecond)
	}
	ts.Fatalf("it does not end")
}

// cmdStart is "start VAR command…": runs a program until the end of the script and puts the program's id into VAR.
func cmdStart(ts *testscript.TestScript, _ bool, args []string) {
	c := exec.Command(args[1], args[2:]...)
	ts.Check(c.Start())
	ts.Defer(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	ts.Setenv(args[0], strconv.Itoa(c.Process.Pid))
}

// cmdNobody is "nobody STATUS args…": clrsnap as a user without rights.
func cmdNobody(ts *testscript.TestScript, _ bool, args []string) {
	dir, c, err := nobodysCommand(args[1:]...)
	ts.Check(err)
	ts.Defer(func() { os.RemoveAll(dir) })
	c.Stdout, c.Stderr = ts.Stdout(), ts.Stderr()
	if err := c.Run(); err != nil && c.ProcessState == nil {
		ts.Fatalf("%v", err)
	}
	if got := strconv.Itoa(c.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("status %s, want %s", got, args[0])
	}
}

// nobodysCommand copies the program to a folder that everybody may read. The caller removes
// the folder.
func nobodysCommand(args ...string) (dir string, c *exec.Cmd, err error) {
	if dir, err = os.MkdirTemp("", "clrsnap"); err != nil {
		return "", nil, err
	}
	if err = os.Chmod(dir, 0o755); err == nil {
		err = role.Copy(dir + "/clrsnap")
	}
	return dir, asNobody(dir+"/clrsnap", args...), err
}

// asNobody runs a program as a user without any rights.
func asNobody(name string, args ...string) *exec.Cmd {
	const nobody = 65534
	c := exec.Command(name, args...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return c
}

// TestHurries: the verb may stand anywhere, with anything in front of it.
func TestHurries(t *testing.T) {
	for args, want := range map[string]string{
		"stack 42": "hurries", "--color never stack 42": "hurries", "--color=never locks 42": "hurries",
		"why 42 --for 3s": "hurries", "stack --core file": "", "locks --core=file": "", "record 42": "hurries",
		"heap -o stack 42": "", "stock 42": "", "": "", "tasks 42": "briefly", "requests 42": "briefly",
		"tasks --core file": "",
	} {
		got := ""
		if hurries, briefly := hurries(newRoot(&app{}), strings.Fields(args)); briefly {
			got = "briefly"
		} else if hurries {
			got = "hurries"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}

// TestCalm: what is no command with a result at once has the ordinary priority, as this test has.
func TestCalm(t *testing.T) {
	if !early.Begun() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: no right to raise the priority, or somebody has chosen a priority")
	}
	const ordinary = 20 // of getpriority(2): 20 minus the nice value
	if got, err := unix.Getpriority(unix.PRIO_PROCESS, os.Getpid()); got != ordinary || err != nil {
		t.Errorf("getpriority says %d, %v", got, err)
	}
}
