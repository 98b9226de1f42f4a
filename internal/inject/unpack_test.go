package inject

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/procfs"
	"clrsnap/internal/testenv"

	"golang.org/x/sys/unix"
)

// sleeper is an idle process with an environment.
func sleeper(t *testing.T, cmd *exec.Cmd, env ...string) int {
	t.Helper()
	cmd.Env = env
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	// Start returns before the kernel has laid out the new program's environment, and another
	// program may start the sleeper.
	environ, comm := fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid), fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid)
	for range 1000 {
		name, _ := os.ReadFile(comm)
		if text, err := os.ReadFile(environ); err != nil ||
			string(name) == "sleep\n" && (len(text) > 0 || len(env) == 0) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return cmd.Process.Pid
}

func goodUnpack(t *testing.T, pid int) *folder {
	t.Helper()
	f, err := unpack(dirOf(t, pid), []byte("library"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestFolder: the owner of the folder, its permissions, and its removal.
func TestFolder(t *testing.T) {
	needRoot(t)
	inUserNamespace := exec.Command("sleep", "60")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: nobody, Size: 1}}
	inUserNamespace.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
		UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{NoSetGroups: true}}
	for _, tt := range []struct {
		name string
		cmd  *exec.Cmd
		uid  uint32
		in   func(*testing.T) string
	}{
		{"root of a user namespace", inUserNamespace, nobody, nobodysDir},
		{"root", exec.Command("sleep", "60"), 0, publicDir},
		{"nobody", asNobody(t, exec.Command("sleep", "60")), nobody, nobodysDir},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tmp := tt.in(t)
			f := goodUnpack(t, sleeper(t, tt.cmd, "TMPDIR="+tmp))
			if filepath.Dir(f.path) != tmp {
				t.Errorf("the folder is %s", f.path)
			}
			for path, mode := range map[string]os.FileMode{f.path: os.ModeDir | 0o700, f.library(): 0o400,
				f.socket(): os.ModeSocket | 0o600} {
				info, err := os.Lstat(path)
				if err != nil {
					t.Fatal(err)
				}
				st := info.Sys().(*syscall.Stat_t)
				if info.Mode() != mode || st.Uid != tt.uid || st.Gid != tt.uid {
					t.Errorf("%s: %v of user %d, group %d, want %v of %d", path, info.Mode(), st.Uid, st.Gid,
						mode, tt.uid)
				}
			}
			if text, err := os.ReadFile(f.library()); err != nil || string(text) != "library" {
				t.Errorf("the library is %q (%v)", text, err)
			}
			c, err := net.Dial("unix", f.socket())
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			left(t, tmp)
			if err := f.Close(); err != nil {
				t.Errorf("once more: %v", err)
			}
			if os.Geteuid() != 0 {
				t.Fatal("this process has lost its rights")
			}
		})
	}
}

// TestNotWhereItCannotWrite: a process cannot use its TMPDIR or links to make us, as root, write
// where the process itself could not write.
func TestNotWhereItCannotWrite(t *testing.T) {
	roots, theirs := publicDir(t), nobodysDir(t)
	secret := filepath.Join(roots, "secret") // open to all, in a closed directory
	for _, dir := range []string{secret, filepath.Join(secret, "open")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(secret, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(theirs, "link")
	if err := os.Symlink(roots, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{roots, link, filepath.Join(secret, "open")} {
		notIn(t, dir, asNobody(t, exec.Command("sleep", "60")))
	}
}

// notIn fails if the folder of a program is made in its TMPDIR.
func notIn(t *testing.T, tmp string, cmd *exec.Cmd) {
	t.Helper()
	f := goodUnpack(t, sleeper(t, cmd, "TMPDIR="+tmp))
	if filepath.Dir(f.path) != "/tmp" {
		t.Errorf("TMPDIR %s: the folder is %s", tmp, f.path)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestRootWithoutCapabilities: root in a container lacks capabilities of root outside.
func TestRootWithoutCapabilities(t *testing.T) {
	needRoot(t)
	closed := publicDir(t)
	if err := os.Chmod(closed, 0o555); err != nil {
		t.Fatal(err)
	}
	bare := func() *exec.Cmd {
		return exec.Command("setpriv", "--bounding-set=-all", "--inh-caps=-all", "sleep", "60")
	}
	notIn(t, closed, bare())
	contained := exec.Command("sleep", "60")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	contained.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{NoSetGroups: true}}
	notIn(t, closed, contained)

	for what, cmd := range map[string]*exec.Cmd{"without": bare(), "with all": exec.Command("sleep", "60")} {
		tmp := publicDir(t)
		if what == "with all" {
			tmp = closed // the program could write there itself
		}
		if f := goodUnpack(t, sleeper(t, cmd, "TMPDIR="+tmp)); filepath.Dir(f.path) != tmp {
			t.Errorf("root %s capabilities: TMPDIR %s, the folder is %s", what, tmp, f.path)
		}
	}
	if f := goodUnpack(t, sleeper(t, bare(), "TMPDIR=/tmp")); f.Close() != nil {
		t.Error("the folder stays")
	}
}

// TestImmutable: an immutable directory is named with the reason.
func TestImmutable(t *testing.T) {
	needRoot(t)
	dir := publicDir(t)
	if out, err := exec.Command("chattr", "+i", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: %v: %s", err, out)
	}
	defer exec.Command("chattr", "-i", dir).Run()
	of := dirOf(t, sleeper(t, exec.Command("sleep", "60")))
	root, err := of.Root()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	u, err := userOf(of)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := newFolder(root, dir, u, nil); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("%v, %v", f, err)
	}
}

// TestNotWhereOthersWrite: the library is not unpacked where another user could replace it by his
// own file, under the name that the runtime is told.
func TestNotWhereOthersWrite(t *testing.T) {
	needRoot(t)
	mode := func(dir string, mode os.FileMode) string {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	below := func(dir string) string {
		sub := filepath.Join(dir, "below")
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		return sub
	}
	link := func(dir, to string, owner int) string {
		name := filepath.Join(dir, "link")
		if err := errors.Join(os.Symlink(to, name), os.Lchown(name, owner, owner)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const sticky = os.ModeSticky
	openAbove := publicDir(t)
	inOpen := below(openAbove)
	mode(openAbove, 0o777)
	theirs := nobodysDir(t)
	for _, c := range []struct {
		what, tmp string
		used      bool
	}{
		{"everybody's, without the sticky bit", mode(publicDir(t), 0o777), false},
		{"a group's", mode(publicDir(t), 0o775), false},
		{"below one that is everybody's", inOpen, false},
		{"another user's", theirs, false},
		{"below another user's", below(theirs), false},
		{"another user's, with the sticky bit", mode(nobodysDir(t), 0o777|sticky), false},
		{"behind another user's link", link(mode(publicDir(t), 0o777|sticky), publicDir(t), nobody), false},
		{"behind a link of root's", link(mode(publicDir(t), 0o777|sticky), publicDir(t), 0), true},
		{"everybody's, with the sticky bit", mode(publicDir(t), 0o777|sticky), true},
		{"root's", publicDir(t), true},
	} {
		f := goodUnpack(t, sleeper(t, exec.Command("sleep", "60"), "TMPDIR="+c.tmp))
		if used := filepath.Dir(f.path) == c.tmp; used != c.used {
			t.Errorf("%s: the folder is %s", c.what, f.path)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRootOf(t *testing.T) {
	for _, c := range []struct {
		ids  []procfs.IDRange
		want int
	}{
		{[]procfs.IDRange{{Inside: 0, Outside: 0, Count: 4294967295}}, 0},
		{[]procfs.IDRange{{Inside: 0, Outside: 100000, Count: 65536}}, 100000},
		{[]procfs.IDRange{{Inside: 1, Outside: 5, Count: 1}, {Inside: 0, Outside: 7, Count: 1}}, 7},
		{[]procfs.IDRange{{Inside: 1000, Outside: 1000, Count: 1}}, -1},
		{[]procfs.IDRange{{Inside: 0, Outside: 5, Count: 0}}, -1},
		{nil, -1},
	} {
		if got := rootOf(c.ids); got != c.want {
			t.Errorf("%v: %d, want %d", c.ids, got, c.want)
		}
	}
}

// TestPlantedFolder: files in the way, and folders that look like ours, do no harm.
func TestPlantedFolder(t *testing.T) {
	tmp, elsewhere := publicDir(t), publicDir(t)
	victim := filepath.Join(elsewhere, libraryName)
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(tmp, folderPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(tmp, folderPrefix+"fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(tmp, folderPrefix+"full")
	if err := os.MkdirAll(filepath.Join(full, "something"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := goodUnpack(t, sleeper(t, exec.Command("sleep", "60"), "TMPDIR="+tmp))
	if filepath.Dir(f.path) != tmp {
		t.Errorf("the folder is %s", f.path)
	}
	for _, file := range []string{victim, filepath.Join(full, "something")} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	// A foreign file in our folder stays, and is reported.
	if err := os.WriteFile(filepath.Join(f.path, "foreign"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); !errors.Is(err, unix.ENOTEMPTY) || !strings.Contains(err.Error(), f.path) {
		t.Errorf("closing: %v", err)
	}
}

// TestStale: the next program removes the folder of a killed program; the folder of a running
// program stays.
func TestStale(t *testing.T) {
	tmp := publicDir(t)
	pid := sleeper(t, exec.Command("sleep", "60"), "TMPDIR="+tmp)
	cmd := public(t, unpacker, pid)
	other := testenv.StartSaying(t, cmd)
	if filepath.Dir(other) != tmp {
		t.Fatalf("the other one says %q", other)
	}
	f := goodUnpack(t, pid)
	if found := folders(t, tmp); len(found) != 2 {
		t.Errorf("two programs have %v", found)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if found := folders(t, tmp); len(found) != 1 {
		t.Errorf("one that was killed has left %v", found)
	}
	f = goodUnpack(t, pid)
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", other, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	left(t, tmp)
}

// TestFull: a full directory is skipped, and nothing stays in it.
func TestFull(t *testing.T) {
	needRoot(t)
	tmp := publicDir(t)
	if err := unix.Mount("none", tmp, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(tmp, unix.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(tmp, "x"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	f := goodUnpack(t, sleeper(t, exec.Command("sleep", "60"), "TMPDIR="+tmp))
	if filepath.Dir(f.path) == tmp {
		t.Errorf("the folder is %s", f.path)
	}
	left(t, tmp)
}

func TestPlaces(t *testing.T) {
	pid := sleeper(t, exec.Command("sleep", "60"), "TMPDIR=/var/../run//x")
	exe, err := filepath.EvalSymlinks("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/run/x", "/tmp", "/var/tmp", "/dev/shm", "/run", "/", filepath.Dir(exe)}
	if got := places(dirOf(t, pid)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, bad := range []string{"relative", "/not\xff UTF-8"} {
		if got := places(dirOf(t, sleeper(t, exec.Command("sleep", "60"), "TMPDIR="+bad))); got[0] != "/tmp" {
			t.Errorf("TMPDIR %q: %q", bad, got)
		}
	}
}

func TestUserIn(t *testing.T) {
	for status, want := range map[string]user{
		"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n":              {4, 8, []int{9, 10}, -1, 0},
		"Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t \nCapEff:\t000001ffffffffff\n": {0, 0, nil, -1, 1<<41 - 1},
	} {
		if got, err := userOfText([]byte(status)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", status, got, err)
		}
	}
	for _, status := range []string{
		"",
		"Uid:\t1\t2\t3\t4\n",
		"Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nCapEff:\tx\n",
		"Uid:\t1\t2\t3\nGid:\t5\t6\t7\t8\n",
		"Uid:\t1\t2\t3\tx\nGid:\t5\t6\t7\t8\n",
	} {
		if u, err := userOfText([]byte(status)); err == nil {
			t.Errorf("%q: %+v", status, u)
		}
	}
}

// TestDo: rights that cannot be assumed are an error, not other rights, and afterwards every
// thread has its earlier rights.
func TestDo(t *testing.T) {
	if os.Geteuid() != 0 {
		if err := (user{uid: os.Geteuid() + 1}).do(func() error { return nil }); err == nil {
			t.Error("became another user")
		}
		return
	}
	rights := func() string {
		u, err := userOfText(threadStatus(t))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(u)
	}
	before := rights()
	for range 100 {
		err := user{uid: nobody, gid: nobody - 1, groups: []int{7, 8}, caps: 6}.do(func() error {
			if got := rights(); got != "{65534 65533 [7 8] -1 6}" {
				return fmt.Errorf("these are the rights of %s", got)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if u, err := userOfText(text); err != nil || fmt.Sprint(u) != before {
			t.Errorf("%s: the rights of %v remain (%v), not those of %s", file, u, err, before)
		}
	}
	if _, err := os.Stat(nobodysSecret(t)); err != nil {
		t.Errorf("root has lost its capabilities: %v", err)
	}
}

// userOfText is the user in the text of a status.
func userOfText(text []byte) (user, error) {
	s, err := procfs.ParseStatus(text)
	if err != nil {
		return user{}, err
	}
	return userIn(&s)
}

// threadStatus is the status of the current thread.
func threadStatus(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// nobodysSecret is a file that only its user and root can see.
func nobodysSecret(t *testing.T) string {
	t.Helper()
	dir := nobodysDir(t)
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	return file
}
