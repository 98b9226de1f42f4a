package matrix

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// needRoot ends the test if the test cannot make namespaces.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root can make namespaces and change the user")
	}
}

// placeShapes are the runtimes and shapes for every place: a runtime in the executable, and a runtime with a separate
// libcoreclr.so.
var placeShapes = []struct {
	runtime string
	shape   testenv.Shape
}{
	{"net10", testenv.SingleFile},
	{"net9", testenv.SelfContained},
}

// inPlaces runs a test for each of placeShapes, with a program in a folder that every user may read.
func inPlaces(t *testing.T, test func(t *testing.T, p *testenv.Program)) {
	layer.Each(t)
	for _, s := range placeShapes {
		if !testenv.InLayer(s.runtime) {
			continue
		}
		t.Run(s.runtime, func(t *testing.T) {
			testenv.Kit(t).Need(t, s.runtime)
			test(t, testenv.Publish(t, "idle", s.runtime, s.shape, publicDir(t)))
		})
	}
}

// publicDir is a temporary folder, readable for every user.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "clrsnap-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inShell makes a shell script start a command. The script gets args as $1, $2 … and must end in: exec "$@", after
// shifting args away.
func inShell(cmd *exec.Cmd, script string, args ...string) {
	cmd.Args = slices.Concat([]string{"sh", "-c", script, "sh"}, args, []string{cmd.Path}, cmd.Args[1:])
	cmd.Path = "/bin/sh"
}

// checkIdle requires the stacks of the program "idle", whole and with names.
func checkIdle(t *testing.T, pid int) {
	t.Helper()
	p, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if r := p.Info().Runtime; r.Version == "" || r.Shape == "" || r.Path == "" {
		t.Errorf("the runtime is %+v", r)
	}
	s, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	idle := 0
	for i := range s.Threads {
		th := &s.Threads[i]
		wantComplete(t, th)
		if !strings.HasPrefix(th.Name, "idle-") {
			continue
		}
		idle++
		blocks, descends := 0, 0
		for _, f := range th.Frames {
			switch {
			case f.Module != "idle":
			case f.Method == "Idle.Program.Block":
				blocks++
			case f.Method == "Idle.Program.Descend" || f.Method == "Idle.Program.Step":
				descends++
			}
		}
		if blocks != 1 || descends < 10 || th.ThreadID == 0 {
			t.Errorf("%q (ThreadID %#x) has %d frames of Block, %d of Descend and Step:\n%s",
				th.Name, th.ThreadID, blocks, descends, livetest.Text(th.Frames))
		}
	}
	if idle != 3 {
		t.Errorf("found %d of 3 threads", idle)
	}
}

var idleArgs = []string{"--threads", "3", "--max-seconds", "120"}

// TestNamesOfFolders: names that /proc/PID/maps escapes, and other unusual names. The folder gets the next name while
// the program runs.
func TestNamesOfFolders(t *testing.T) {
	names := []string{
		"a b", "two\nlines", "x (deleted)", "tab\tquote\"'", "ünï 目", `back\slash`, `back\012slash`, "-n",
		strings.Repeat("n", 255),
	}
	inPlaces(t, func(t *testing.T, p *testenv.Program) {
		dir := publicDir(t)
		var last *testenv.App
		for _, name := range names {
			to := filepath.Join(dir, name)
			if err := os.Rename(p.Dir, to); err != nil {
				t.Fatal(err)
			}
			p = p.At(to)
			if last != nil {
				checkIdle(t, last.PID)
			}
			last = p.Start(t, testenv.Options{Args: idleArgs})
			t.Run(strconv.Quote(name), func(t *testing.T) { checkIdle(t, last.PID) })
		}
		p.Delete(t)
		checkIdle(t, last.PID)
	})
}

// TestDeletedNames: a name that ends in " (deleted)", as the kernel marks deleted files.
func TestDeletedNames(t *testing.T) {
	inPlaces(t, func(t *testing.T, p *testenv.Program) {
		named := p.At(p.Dir + " (deleted)")
		if err := os.Rename(p.Dir, named.Dir); err != nil {
			t.Fatal(err)
		}
		plain := named.Exe
		named.Exe += " (deleted)"
		if err := os.Rename(plain, named.Exe); err != nil {
			t.Fatal(err)
		}
		a := named.Start(t, testenv.Options{Args: idleArgs})
		for _, fate := range fates {
			fate.befall(named, t)
			t.Run(fate.name, func(t *testing.T) { checkIdle(t, a.PID) })
		}
	})
}

// TestSymbolicLink starts a program through a link to its executable, and through a link
// to its folder.
func TestSymbolicLink(t *testing.T) {
	inPlaces(t, func(t *testing.T, p *testenv.Program) {
		dir := publicDir(t)
		for name, to := range map[string]string{"program": p.Exe, "folder": p.Dir} {
			if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		linked := p.At(filepath.Join(dir, "folder"))
		byLink := *p
		byLink.Exe = filepath.Join(dir, "program")
		for _, q := range []*testenv.Program{linked, &byLink} {
			checkIdle(t, q.Start(t, testenv.Options{Args: idleArgs}).PID)
		}
	})
}

// TestMountNamespace: the program's files exist in its own mount namespace only. The test's mount namespace has other
// files at the same paths.
func TestMountNamespace(t *testing.T) {
	needRoot(t)
	const script = `set -e
mount --make-rprivate /
mount --bind "$1" "$2"
mount -t tmpfs none "$1"
shift 2
exec "$@"`
	inPlaces(t, func(t *testing.T, p *testenv.Program) {
		decoy := p.At(filepath.Join(publicDir(t), "program"))
		if err := os.CopyFS(decoy.Dir, os.DirFS(p.Dir)); err != nil {
			t.Fatal(err)
		}
		decoy.Replace(t)
		a := decoy.Start(t, testenv.Options{Args: idleArgs, Prepare: func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			inShell(cmd, script, p.Dir, decoy.Dir)
		}})
		checkIdle(t, a.PID)
		p.Delete(t) // a layer of the container is gone
		checkIdle(t, a.PID)
	})
}

// TestOverlay: the program's files are in the lower layer of an overlay. Their inodes and devices differ from the
// inodes and devices in the mappings.
func TestOverlay(t *testing.T) {
	needRoot(t)
	const script = `set -e
mount --make-rprivate /
mount -t tmpfs none "$3"
mkdir "$3/upper" "$3/work"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$3/upper,workdir=$3/work" "$2"
shift 3
exec "$@"`
	inPlaces(t, func(t *testing.T, p *testenv.Program) {
		dir := publicDir(t)
		merged, layers := filepath.Join(dir, "merged"), filepath.Join(dir, "layers")
		for _, d := range []string{merged, layers} {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		a := p.At(merged).Start(t, testenv.Options{Args: idleArgs, Prepare: func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			inShell(cmd, script, p.Dir, merged, layers)
		}})
		checkIdle(t, a.PID)
	})
}

// jail mounts the files that a program needs below a folder, and makes the folder the program's root.
const jail = `set -e
mount --make-rprivate /
root=$1
shift
for dir in lib lib64 usr proc dev tmp; do
	mkdir -p "$root/$dir"
	test ! -e "/$dir" || mount --rbind "/$dir" "$root/$dir"
done
exec chroot "$root" "$@"`

// TestChroot: the kernel shows the test other paths of the program than the program itself sees.
func TestChroot(t *testing.T) {
	needRoot(t)
	inPlaces(t, func(t *testing.T, p *testenv.Program) {
		root := filepath.Dir(p.Dir)
		a := p.At("/program").Start(t, testenv.Options{Args: idleArgs, Prepare: func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			inShell(cmd, jail, root)
		}})
		checkIdle(t, a.PID)
	})
}

// TestNestedPIDNamespace: the program is process 1 of a namespace inside another namespace.
func TestNestedPIDNamespace(t *testing.T) {
	needRoot(t)
	inPlaces(t, func(t *testing.T, p *testenv.Program) {
		a := p.Start(t, testenv.Options{Args: idleArgs, Prepare: func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
			inShell(cmd, `exec unshare --pid --fork --kill-child "$@"`)
		}})
		checkIdle(t, childOf(t, a.PID))
		wantDoctor(t, childOf(t, a.PID), "it has its own (a container), where it is process 1")
	})
}

// childOf returns the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// wantDoctor requires that Diagnose finds no obstacle and says the given text.
func wantDoctor(t *testing.T, pid int, says string) {
	t.Helper()
	found := false
	checks := clrsnap.Diagnose(context.Background(), pid)
	for _, c := range checks {
		found = found || strings.Contains(c.Detail, says)
		if c.Outcome == snapshot.Blocking {
			t.Errorf("%s: %s (%s)", c.Name, c.Detail, c.Remedy)
		}
	}
	if !found {
		t.Errorf("nothing says %q: %+v", says, checks)
	}
}

const nobody = 65534

// TestUserNamespace: the program is root of a user namespace of its own, with mounts and processes of its own, as in a
// rootless container.
func TestUserNamespace(t *testing.T) {
	needRoot(t)
	inPlaces(t, func(t *testing.T, p *testenv.Program) {
		a := p.Start(t, testenv.Options{Args: idleArgs, Prepare: func(cmd *exec.Cmd) {
			ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: nobody, Size: 1}}
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
				UidMappings: ids, GidMappings: ids,
				Credential: &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
			}
		}})
		checkIdle(t, a.PID)
		wantDoctor(t, a.PID, "it has its own (a container), where it is process 1")
	})
}

// TestOtherUser: root can look at another user's program. The other user can look at the program, too, even if the
// program's files are gone and only root could still open them. The other user may not look at root's program.
func TestOtherUser(t *testing.T) {
	needRoot(t)
	command := livetest.Command(t)
	public := filepath.Join(publicDir(t), "clrsnap")
	if err := os.Link(command, public); err != nil {
		t.Fatal(err)
	}
	as := func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = "/"
	}
	look := func(t *testing.T, pid int, want ...string) error {
		t.Helper()
		cmd := exec.Command(public, "stack", strconv.Itoa(pid), "--full", "--group=never")
		as(cmd)
		out, err := cmd.CombinedOutput()
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				t.Errorf("clrsnap stack does not say %q:\n%s", w, out)
			}
		}
		return err
	}
	inPlaces(t, func(t *testing.T, p *testenv.Program) {
		roots := p.Start(t, testenv.Options{Args: idleArgs})
		his := p.Start(t, testenv.Options{Args: idleArgs, Prepare: as})
		for _, fate := range fates {
			fate.befall(p, t)
			checkIdle(t, his.PID)
			if err := look(t, his.PID, "idle-2", "Idle.Program.Block", "Idle.Program.Descend"); err != nil {
				t.Errorf("%s: %v", fate.name, err)
			}
		}
		if err := look(t, roots.PID, "run as root"); err == nil {
			t.Error("nobody may look at root's program")
		}
	})
}

// TestForeignProc: where /proc hides processes, or shows another PID namespace, every verb says so.
func TestForeignProc(t *testing.T) {
	needRoot(t)
	a := testenv.Start(t, "idle", testenv.Options{})
	public := filepath.Join(publicDir(t), "clrsnap")
	if err := os.Link(livetest.Command(t), public); err != nil {
		t.Fatal(err)
	}
	const asNobody = "setpriv --reuid 65534 --regid 65534 --clear-groups "
	for _, c := range []struct {
		name, prepare, as, pid, want string
		space                        uintptr
	}{
		{"hidden", "mount -t proc -o hidepid=2 proc /proc", asNobody, strconv.Itoa(a.PID),
			"the process exists, but /proc does not show it", 0},
		{"of another namespace", ":", "", "1", "/proc shows another PID namespace", syscall.CLONE_NEWPID},
		{"missing", "mount -t tmpfs proc /proc", "", strconv.Itoa(a.PID), "/proc is not mounted", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, verb := range []string{
				"stack " + c.pid, "doctor " + c.pid, "locks " + c.pid, "heap " + c.pid, "ps",
			} {
				if c.space == 0 && c.as != "" && verb == "ps" {
					continue // a process that is hidden is not listed
				}
				cmd := exec.Command("sh", "-c", "mount --make-rprivate / && "+c.prepare+" && "+c.as+public+" "+verb)
				cmd.Dir = "/"
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | c.space}
				out, err := cmd.CombinedOutput()
				if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), c.want) {
					t.Errorf("%s: %v\n%s", verb, err, out)
				}
			}
		})
	}
	livetest.EndsWell(t, a)
}
