package diagnostics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/foreign"
	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// ErrNoSocket: the process has no diagnostics socket. It is not a .NET process, or
// runs without diagnostics.
var ErrNoSocket = errors.New("no diagnostics socket")

// Listens returns nil if a process has a diagnostics socket. ErrNoSocket: the process has none.
func Listens(of procfs.Dir) error {
	dir, _, err := sockets(of)
	if err != nil {
		return err
	}
	return dir.Close()
}

// dial connects to the diagnostics socket of a process.
func dial(ctx context.Context, of procfs.Dir) (*net.UnixConn, error) {
	dir, names, err := sockets(of)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for _, name := range names {
		var c *net.UnixConn
		if c, err = connect(ctx, dir, name); err != nil {
			continue
		}
		// Another user may have put a socket there, or a link to another process's.
		var listener int
		if listener, err = PeerPID(c); err == nil && listener == of.PID() {
			return c, nil
		}
		c.Close()
		if err == nil {
			err = fmt.Errorf("%s/%s belongs to process %d, not to %d", dir.Name(), name, listener, of.PID())
		}
	}
	return nil, err
}

// connect connects to a socket in dir. It does not follow links, because they would be resolved
// from our root directory. A path below /proc/self/fd is short enough, however long the
// directory's own path is.
func connect(ctx context.Context, dir *os.File, name string) (*net.UnixConn, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	var c net.Conn
	if err == nil {
		defer unix.Close(fd)
		var d net.Dialer
		c, err = d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("cannot connect to %s/%s: %w", dir.Name(), name, err)
	}
	return c.(*net.UnixConn), nil
}

// PeerPID is the process at the other end of a connection, in our PID namespace: the process that
// connected, or that listened for the connection. 0: the process is not visible in our namespace.
func PeerPID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctlErr != nil {
		return 0, ctlErr
	}
	if err != nil {
		return 0, fmt.Errorf("cannot find out which process is at the other end of a socket: %w", err)
	}
	return int(cred.Pid), nil
}

// SocketPrefix is the begin of the path of a process's diagnostics socket, as the process sees
// the path. The runtime names the socket after its own PID, in its own PID namespace, and its
// start time, and puts the socket in its $TMPDIR or /tmp (src/coreclr/pal/src/thread/process.cpp,
// PAL_GetTransportName). The rest of the path can be cut off: the address of a socket has 107
// bytes.
func SocketPrefix(of procfs.Dir) (string, error) {
	nspid, err := innermostPID(of)
	if err != nil {
		return "", err
	}
	return path.Join(TemporaryDir(of), "dotnet-diagnostic-"+nspid+"-"), nil
}

// NoPlace says why a process can have no diagnostics socket at the runtime's place; "": no
// obstacle is known. The runtime cuts off a path that is too long for the address of a socket.
// The socket is then elsewhere, or does not exist.
func NoPlace(of procfs.Dir) string {
	prefix, err := SocketPrefix(of)
	if err != nil {
		return ""
	}
	where := path.Dir(prefix)
	if len(prefix) > maxSocketPath {
		return "its TMPDIR " + where + " is too long for the path of a socket"
	}
	root, err := of.Root()
	if err != nil {
		return ""
	}
	defer root.Close()
	dir, err := foreign.OpenDirBelow(int(root.Fd()), where)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "its TMPDIR " + where + " does not exist"
		}
		return ""
	}
	dir.Close()
	return ""
}

// maxSocketPath bounds the path of a socket, in bytes (sun_path, unix(7), with its 0).
const maxSocketPath = 107

// sockets opens the directory with the diagnostics socket of a process and returns the socket's
// possible names, newest first: an earlier process with the same PID may have left a socket
// behind. There is at least one name.
func sockets(of procfs.Dir) (dir *os.File, names []string, err error) {
	prefix, err := SocketPrefix(of)
	if err != nil {
		return nil, nil, err
	}
	root, err := of.Root()
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	where := path.Dir(prefix)
	dir, err = foreign.OpenDirBelow(int(root.Fd()), where)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w in %s, which does not exist", ErrNoSocket, where)
	}
	if err != nil {
		return nil, nil, err
	}
	all, err := namesWith(dir, path.Base(prefix))
	if err == nil {
		names = newestSockets(dir, all)
		if bound, err := boundSockets(of, path.Base(prefix)); err == nil {
			// The files of killed processes stay, and PIDs are reused.
			names = slices.DeleteFunc(names, func(name string) bool {
				return !slices.ContainsFunc(bound, func(p string) bool { return path.Base(p) == name })
			})
		}
		if len(names) > 0 {
			return dir, names, nil
		}
		err = fmt.Errorf("%w in %s", ErrNoSocket, where)
	}
	dir.Close()
	return nil, nil, err
}

// Bounds of a directory of the target: how many names are looked at, and how many are kept.
const (
	maxLooked = 1 << 20
	maxNames  = 1 << 12
)

// namesWith lists the names in a directory that begin with prefix, within the bounds.
func namesWith(dir *os.File, prefix string) (names []string, err error) {
	const portion = 1 << 10
	for range maxLooked / portion {
		some, err := dir.Readdirnames(portion)
		for _, name := range some {
			if strings.HasPrefix(name, prefix) && len(names) < maxNames {
				names = append(names, name)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// newestSockets chooses the sockets, newest first.
func newestSockets(dir *os.File, all []string) []string {
	var names []string
	created := map[string]int64{} // ns
	for _, name := range all {
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil ||
			st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			continue
		}
		names = append(names, name)
		created[name] = st.Mtim.Nano()
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(created[b], created[a]) })
	return names
}

// BoundSocket is the path under which a process listens for diagnostics, whether or not the file
// still exists; "" if the process does not listen, or if the path is not known.
func BoundSocket(of procfs.Dir) string {
	prefix, err := SocketPrefix(of)
	if err != nil {
		return ""
	}
	bound, err := boundSockets(of, path.Base(prefix))
	if err != nil || len(bound) == 0 {
		return ""
	}
	return bound[0]
}

// boundSockets lists the paths of sockets in the network namespace of a process with names that
// begin with prefix.
func boundSockets(of procfs.Dir, prefix string) ([]string, error) {
	return of.BoundSockets(maxNames, func(path string) bool { return strings.Contains(path, "/"+prefix) })
}

// TemporaryDir is a process's directory for temporary files, from the environment at its start.
func TemporaryDir(of procfs.Dir) string {
	env, err := of.Environ()
	if err == nil {
		for v := range env {
			if dir, ok := strings.CutPrefix(v, "TMPDIR="); ok && dir != "" {
				return dir
			}
		}
	}
	return "/tmp"
}

// innermostPID is a process's id in its own PID namespace.
func innermostPID(of procfs.Dir) (string, error) {
	s, err := of.Status()
	if err != nil {
		return "", err
	}
	pid, ok := s.InnermostPID()
	if !ok {
		return "", fmt.Errorf("the status of process %d has no NSpid", of.PID())
	}
	return strconv.Itoa(pid), nil
}
