package inject

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// A user is the identity of a process's accesses to the file system, with ids of our user
// namespace.
type user struct {
	uid, gid int
	groups   []int
	root     int    // root of the process's user namespace; -1: no root
	caps     uint64 // effective capabilities in our user namespace
}

// userOf reads the user of a process (proc_pid_status(5)).
func userOf(of procfs.Dir) (user, error) {
	s, err := of.Status()
	if err != nil {
		return user{}, err
	}
	u, err := userIn(&s)
	if err != nil {
		return u, err
	}
	if ids, err := of.UIDMap(); err == nil {
		u.root = rootOf(ids)
	}
	theirs, err := of.Readlink("ns/user")
	if ours, e := os.Readlink("/proc/self/ns/user"); err != nil || e != nil || theirs != ours {
		u.caps = 0 // they count only inside the process's own user namespace
	}
	return u, nil
}

// rootOf is the id of root in a user namespace with these user ids (user_namespaces(7)), -1 if
// there is no root.
func rootOf(uids []procfs.IDRange) int {
	for _, r := range uids {
		if r.Inside == 0 && r.Count > 0 {
			return r.Outside
		}
	}
	return -1
}

// userIn is the user in a status.
func userIn(s *procfs.Status) (user, error) {
	u := user{uid: s.UID.FileSystem, gid: s.GID.FileSystem, groups: s.Groups, root: -1, caps: s.CapEff}
	if u.uid < 0 || u.gid < 0 {
		return user{}, errors.New("/proc does not tell the user of the process")
	}
	return u, nil
}

// do calls f with the rights of the user in the file system, and no others. f must not start
// goroutines that need the rights.
func (u user) do(f func() error) error {
	caps, err := capabilities()
	if err != nil {
		return err
	}
	if u.uid == os.Geteuid() && caps&^u.caps == 0 {
		return f()
	}
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	ours := user{uid: os.Geteuid(), gid: os.Getegid(), groups: groups, caps: caps}
	done := make(chan error)
	go func() {
		// A thread whose own rights cannot be restored is never used again.
		runtime.LockOSThread()
		err := u.assume()
		if err == nil {
			err = f()
		}
		if ours.assume() == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// assume gives the current thread the rights of the user.
func (u user) assume() error {
	err := setCapabilities(^uint64(0)) // all permitted capabilities, to be able to change the rest
	if now, _ := unix.SetfsuidRetUid(-1); err == nil && now != u.uid {
		err = u.assumeIDs()
	}
	if err == nil {
		// With the user id the kernel also changes the file capabilities (capabilities(7)).
		err = setCapabilities(u.caps)
	}
	if err != nil {
		return fmt.Errorf("cannot write files as user %d: %w: run as root or as that user", u.uid, err)
	}
	return nil
}

func (u user) assumeIDs() error {
	err := unix.Setgroups(u.groups) // of the current thread, unlike package syscall's
	if err == nil {
		err = unix.Setfsgid(u.gid)
	}
	if err == nil {
		err = unix.Setfsuid(u.uid)
	}
	// The calls do not report failure; a call with an impossible id returns the current id.
	uid, _ := unix.SetfsuidRetUid(-1)
	gid, _ := unix.SetfsgidRetGid(-1)
	if err == nil && (uid != u.uid || gid != u.gid) {
		err = unix.EPERM
	}
	return err
}

// capabilities are the effective capabilities of the current thread.
func capabilities() (uint64, error) {
	_, sets, err := capget()
	return uint64(sets[1].Effective)<<32 | uint64(sets[0].Effective), err
}

// setCapabilities makes the permitted capabilities in caps effective, for the current thread.
func setCapabilities(caps uint64) error {
	header, sets, err := capget()
	if err != nil {
		return err
	}
	for i := range sets {
		sets[i].Effective = sets[i].Permitted & uint32(caps>>(32*i))
	}
	return unix.Capset(&header, &sets[0])
}

func capget() (header unix.CapUserHeader, sets [2]unix.CapUserData, err error) {
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	err = unix.Capget(&header, &sets[0])
	return header, sets, err
}
