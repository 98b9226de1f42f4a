package procfs

import (
	"bytes"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// A Mount is the used part of a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type Mount struct {
	Dev   uint64 // as in stat(2)
	Root  string // the mounted part of the file system: a path in it
	Place string // the mount point, as the process sees it
	Type  string // of the file system, for example "fuse.sshfs"
}

// ParseMounts calls f with each mount of a mountinfo. After an error f has not got all mounts.
func ParseMounts(b []byte, f func(Mount)) error {
	_, err := mountinfo.GetMountsFromReader(bytes.NewReader(b), func(m *mountinfo.Info) (skip, stop bool) {
		f(Mount{unix.Mkdev(uint32(m.Major), uint32(m.Minor)), m.Root, m.Mountpoint, m.FSType})
		return true, false
	})
	return err
}
