// Package mounts tells which processes can keep a reader waiting for ever: processes that have
// mapped, or can reach, files of a file system with a server that need not answer. Any user can run
// a file system in user space (FUSE); the server of a network file system can be dead. Whoever
// reads a file of the file system, or memory mapped from the file, waits in the kernel until the
// answer comes, and SIGKILL does not end the wait.
//
// The device number identifies a file system, both in /proc/PID/mountinfo and in /proc/PID/maps
// (proc(5)). A file system that is not mounted in any visible place, because it was detached, could
// be of any type.
package mounts

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"clrsnap/internal/memfd"
	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// ErrMayBlock: a process can keep its reader waiting.
var ErrMayBlock = errors.New("a look at the process can wait for ever")

// BlockError names the file system that may block. A BlockError is an ErrMayBlock.
type BlockError struct {
	Type  string // "fuse.sshfs" for example; "": not mounted where we can see the file system
	Place string // the mount point, or the path of the mapped file
}

func (e *BlockError) Error() string {
	if e.Type == "" {
		return fmt.Sprintf("%s is mapped from a file system without a visible mount", e.Place)
	}
	return fmt.Sprintf("%s is a file system of type %s", e.Place, e.Type)
}

// Is makes a BlockError an ErrMayBlock.
func (e *BlockError) Is(err error) bool { return err == ErrMayBlock }

// local are the types of file systems whose answers come from this machine's kernel and disks.
// Nothing is known about other types. autofs is in the list because every machine with systemd has
// an autofs (for binfmt_misc), and this autofs leads to nothing else.
var local = setOf(`
	ext2 ext3 ext4 xfs btrfs bcachefs f2fs zfs jfs reiserfs nilfs2 ufs minix
	tmpfs ramfs rootfs devtmpfs hugetlbfs overlay aufs
	squashfs erofs cramfs romfs iso9660 udf vfat msdos exfat ntfs ntfs3 hfs hfsplus
	proc sysfs cgroup cgroup2 devpts mqueue bpf tracefs debugfs configfs securityfs pstore
	efivarfs fusectl binfmt_misc nsfs rpc_pipefs selinuxfs autofs resctrl`)

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// A table is the content of one mountinfo.
type table struct {
	local map[uint64]bool // devices of local file systems
	slow  *BlockError     // the first file system that is not local; nil: none
}

// maxTable bounds how much of a mountinfo is read, in bytes: a process with more mounts (a thousand
// or so) may well have a mount that blocks.
const maxTable = 256 << 10

// maxTables bounds the kept tables.
const maxTables = 256

// A Checker checks processes. The Checker keeps the tables of mount namespaces, so use a Checker
// for a moment only. A Checker is not safe for concurrent use.
type Checker struct {
	own    *table
	ownNS  string // our user namespace
	tables map[string]*table
	memfd  uint64 // the device of files that exist only in memory
}

// Check returns a BlockError if a process can keep its reader waiting, by a mapping or by any file
// system that the process's files may lie on. maps is the content of /proc/PID/maps. Check touches
// neither the memory nor the files of the process. Unreadable data is not judged: then nothing else
// of the process can be read either.
func (c *Checker) Check(of procfs.Dir, maps []byte) error {
	if c.own == nil {
		c.start()
	}
	t := c.tableOf(of)
	if t == nil {
		return nil
	}
	if t.slow != nil {
		return t.slow
	}
	for _, link := range []string{"exe", "root"} {
		if id, err := Stat(of.FD(), link); err == nil && !c.isLocal(t, id.Dev) {
			return &BlockError{Place: "its " + link}
		}
	}
	known := ^uint64(0) // the local device of the mapping before; no device has this number
	for line := range bytes.Lines(maps) {
		m, path, ok := procfs.ParseMapping(bytes.TrimSuffix(line, []byte{'\n'}))
		if !ok || m.Inode == 0 || m.Dev == known {
			continue
		}
		if !c.isLocal(t, m.Dev) {
			return &BlockError{Place: string(path)}
		}
		known = m.Dev
	}
	return nil
}

func (c *Checker) isLocal(t *table, dev uint64) bool {
	return t.local[dev] || c.own.local[dev] || dev == c.memfd
}

// An ID identifies a file.
type ID struct{ Dev, Inode uint64 }

// Stat returns the kernel's data on a file, by a name relative to a directory, without asking the
// server of the file system. The kernel fills in the inode in any case.
func Stat(dir int, name string) (ID, error) {
	var st unix.Statx_t
	if err := unix.Statx(dir, name, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, 0, &st); err != nil {
		return ID{}, err
	}
	return ID{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}, nil
}

func (c *Checker) start() {
	c.tables = map[string]*table{}
	c.own = &table{}
	self, err := procfs.Self()
	if err != nil {
		return
	}
	defer self.Close()
	if t := readTable(self, true); t != nil {
		c.own = t
	}
	c.ownNS, _ = self.Readlink("ns/user")
	if fd, err := memfd.Create("clrsnap"); err == nil {
		if id, err := Stat(self.FD(), "fd/"+strconv.Itoa(fd)); err == nil {
			c.memfd = id.Dev
		}
		unix.Close(fd)
	}
}

// tableOf reads the mount table of a process; nil: not allowed.
func (c *Checker) tableOf(of procfs.Dir) *table {
	mnt, err1 := of.Readlink("ns/mnt")
	user, err2 := of.Readlink("ns/user")
	if err1 != nil || err2 != nil {
		return nil
	}
	key := mnt + " " + user
	if t := c.tables[key]; t != nil {
		return t
	}
	// Every user can make a user namespace, and in the namespace an overlay over a file system of
	// the user's own making.
	t := readTable(of, user == c.ownNS)
	if t != nil {
		if len(c.tables) >= maxTables {
			clear(c.tables)
		}
		c.tables[key] = t
	}
	return t
}

// readTable reads the mountinfo of a process; nil: unreadable.
func readTable(of procfs.Dir, overlayIsLocal bool) *table {
	b, err := of.ReadMost("mountinfo", maxTable+1)
	if err != nil {
		return nil
	}
	return judge(b, overlayIsLocal)
}

// judge judges a mountinfo.
func judge(b []byte, overlayIsLocal bool) *table {
	t := &table{local: map[uint64]bool{}}
	if len(b) > maxTable {
		t.slow = &BlockError{Type: "unknown", Place: "a mount among thousands"}
		return t
	}
	err := procfs.ParseMounts(b, func(m procfs.Mount) {
		if local[m.Type] && (m.Type != "overlay" || overlayIsLocal) {
			t.local[m.Dev] = true
		} else if t.slow == nil {
			t.slow = &BlockError{Type: m.Type, Place: m.Place}
		}
	})
	if err != nil && t.slow == nil {
		t.slow = &BlockError{Type: "unknown", Place: "a mount of the process"}
	}
	return t
}
