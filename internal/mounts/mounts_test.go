package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// process makes a folder like a /proc/PID, as far as a Checker reads the folder.
func process(t *testing.T, mountinfo, userNS string) procfs.Dir {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if userNS == "" {
		userNS, _ = os.Readlink("/proc/self/ns/user")
	}
	for name, to := range map[string]string{"ns/mnt": "mnt:[1]", "ns/user": userNS, "exe": "/proc/self/exe",
		"root": "/"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(mountinfo), 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return procfs.Of(fd, os.Getpid())
}

const disk = "22 1 200:1 / / rw,relatime shared:1 - ext4 /dev/x rw\n"

// TestCheck: mounts, mappings, and the resulting error.
func TestCheck(t *testing.T) {
	const mapped = "7f0a1c000000-7f0a1c021000 r-xp 00000000 c8:01 131                        /a file\n"
	const detached = "7f0a1d000000-7f0a1d021000 r-xp 00000000 00:fe 7                          /gone\n"
	const nowhere = "/gone is mapped from a file system without a visible mount"
	const overlay = "30 1 0:251 / /o rw - overlay overlay rw,lowerdir=/x\n"
	for _, c := range []struct{ name, mountinfo, userNS, maps, want string }{
		{"nothing special", disk, "", mapped + "7fff0000-7fff1000 rw-p 00000000 00:00 0    [stack]\n", ""},
		{"anonymous memory with a name", disk, "", "7fff0000-7fff1000 rw-p 00000000 00:00 0 [anon:x y]\n", ""},
		{"FUSE", disk + "31 22 0:45 / /home/u/remote\\040files rw,nosuid shared:9 master:1 - fuse.sshfs u@h: rw\n", "",
			mapped, "/home/u/remote files is a file system of type fuse.sshfs"},
		{"FUSE on a block device", disk + "31 22 0:45 / /m rw - fuseblk /dev/y rw\n", "",
			mapped, "/m is a file system of type fuseblk"},
		{"a network", disk + "31 22 0:45 / /m rw - nfs4 h:/x rw\n", "", mapped, "/m is a file system of type nfs4"},
		{"a type that nobody knows", disk + "31 22 0:45 / /m rw - newfs x rw\n", "",
			mapped, "/m is a file system of type newfs"},
		{"mapped from nowhere", disk, "", mapped + detached, nowhere},
		{"the same, not first of its lines", disk, "", detached + mapped, nowhere},
		{"an overlay of the administrator's", disk + overlay, "", strings.Replace(mapped, "c8:01", "00:fb", 1), ""},
		{"an overlay that a user may have made", disk + overlay, "user:[7]", mapped,
			"/o is a file system of type overlay"},
		{"a mount called like a local one", disk + "31 22 0:45 / /\\040-\\040ext4 rw - fuse x rw\n", "",
			mapped, "/ - ext4 is a file system of type fuse"},
		{"too many mounts", strings.Repeat(disk, maxTable/len(disk)+1), "",
			mapped, "a mount among thousands is a file system of type unknown"},
		{"nonsense among the mounts", "x\n" + disk, "", mapped,
			"a mount of the process is a file system of type unknown"},
		{"nonsense among the mappings", disk, "", mapped + "x y\n\n", ""},
	} {
		err := new(Checker).Check(process(t, c.mountinfo, c.userNS), []byte(c.maps))
		got := ""
		if err != nil {
			got = err.Error()
			if !errors.Is(err, ErrMayBlock) {
				t.Errorf("%s: %v is no ErrMayBlock", c.name, err)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestCheckSelf: the test's own process, as far as its mounts go. The memory includes a file that
// exists only in memory, like the runtime's own files.
func TestCheckSelf(t *testing.T) {
	fd, err := unix.MemfdCreate("doublemapper", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	dir, err := procfs.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	var b *BlockError
	if err := new(Checker).Check(dir, maps); errors.As(err, &b) && b.Type == "" {
		t.Errorf("a file in memory is taken for one that is mounted nowhere: %v", err)
	} else if err != nil {
		t.Skipf("NOT JUDGED: this machine has such a file system: %v", err)
	}
}
