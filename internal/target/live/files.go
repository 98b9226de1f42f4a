package live

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"clrsnap/internal/foreign"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// ErrNotRegular: a path of the target is not a regular file.
var ErrNotRegular = foreign.ErrNotRegular

// Executable is the path of the process's program, as the process sees the path.
func (p *Process) Executable() (string, error) {
	exe, err := p.Dir().Readlink("exe")
	if err != nil {
		return "", fmt.Errorf("cannot read its executable: %w", p.explain(err))
	}
	return strings.TrimSuffix(exe, " (deleted)"), nil
}

// OpenFile opens a regular file by the target's path, which differs from our path when the target
// runs in a container.
func (p *Process) OpenFile(path string) (*os.File, error) {
	root, err := p.Dir().Root()
	if err != nil {
		return nil, fmt.Errorf("cannot open %s of process %d: %w", path, p.pid, p.explain(err))
	}
	defer root.Close()
	f, err := foreign.OpenBelow(int(root.Fd()), path)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s of process %d: %w", path, p.pid, err)
	}
	return f, nil
}

// OpenMapping opens the very file behind a mapping, even if its name has been removed or given to
// another file since (an update of a running program). For a removed or replaced file the kernel
// requires CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
func (p *Process) OpenMapping(m *target.Mapping) (target.File, error) {
	if !m.IsFile() {
		return nil, fmt.Errorf("mapping at %v: %w", m.Start, ErrNotRegular)
	}
	f, err := p.OpenFile(m.Path)
	if err == nil && sameFile(f, m, true) {
		return f, nil
	}
	name := fmt.Sprintf("map_files/%x-%x", uint64(m.Start), uint64(m.End))
	same, merr := foreign.OpenAt(p.dir, name, m.Path)
	if merr == nil || errors.Is(merr, ErrNotRegular) {
		if f != nil {
			f.Close()
		}
		if merr != nil {
			return nil, fmt.Errorf("cannot open %s: %w", m.Path, merr)
		}
		return same, nil
	}
	if err != nil && !m.Deleted {
		return nil, err
	}
	// On btrfs and on overlays stat(2) and maps have different device numbers.
	if f != nil && sameFile(f, m, false) {
		return f, nil
	}
	if f != nil {
		f.Close()
	}
	return nil, fmt.Errorf("cannot open %s of process %d: the file was removed or replaced while the program was "+
		"running (%w): run as root, or restart the program", m.Path, p.pid, merr)
}

// Written returns the creation time and the latest modification time of the file behind a
// mapping, as far as known.
func (p *Process) Written(m *target.Mapping) (made, changed time.Time, known bool) {
	f, err := p.OpenMapping(m)
	if err != nil {
		return made, changed, false
	}
	defer f.Close()
	file, ok := f.(*os.File)
	var st unix.Statx_t
	const want = unix.STATX_BASIC_STATS | unix.STATX_BTIME
	if !ok || unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, want, &st) != nil {
		return made, changed, false
	}
	at := func(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }
	changed = at(st.Mtime)
	// Not the ctime: links, permissions and owners change the ctime without a new build.
	if st.Mask&unix.STATX_BTIME != 0 {
		made = at(st.Btime)
	}
	return made, changed, true
}

// sameFile compares f with the mapping's inode, and with dev also with the mapping's device.
func sameFile(f *os.File, m *target.Mapping, dev bool) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Ino != m.Inode {
		return false
	}
	return !dev || st.Dev == m.Dev
}
