package procfs

import (
	"bytes"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// A Mount is what is used of a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type Mount struct {
	Dev   uint64 // as in stat(2)
	Root  string // what of its file system is mounted: a path in that
	Place string // where it is mounted, as the process sees it
	Type  string // of the file system, such as "fuse.sshfs"
}

// ParseMounts calls f with each mount of a mountinfo. With an error it has not seen them all.
func ParseMounts(b []byte, f func(Mount)) error {
	_, err := mountinfo.GetMountsFromReader(bytes.NewReader(b), func(m *mountinfo.Info) (skip, stop bool) {
		f(Mount{unix.Mkdev(uint32(m.Major), uint32(m.Minor)), m.Root, m.Mountpoint, m.FSType})
		return true, false
	})
	return err
}
