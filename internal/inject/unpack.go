package inject

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"clrsnap/internal/diagnostics"
	"clrsnap/internal/procfs"
)

// unpack makes a folder in the file system of a process.
func unpack(of procfs.Dir, library []byte) (*folder, error) {
	u, err := userOf(of)
	if err != nil {
		return nil, err
	}
	root, err := of.Root()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := u.do(func() error { return nil }); err != nil {
		return nil, err // the same for every directory
	}
	var tried []string
	for _, where := range places(of) {
		f, err := newFolder(root, where, u, library)
		if err == nil {
			return f, nil
		}
		var inOpening *os.PathError
		if errors.As(err, &inOpening) {
			err = inOpening.Err
		}
		tried = append(tried, fmt.Sprintf("%s: %v", where, err))
	}
	return nil, &Error{PID: of.PID(), Err: ErrNoPlace, Detail: strings.Join(tried, "; "),
		Remedy: fmt.Sprintf("let user %d write to one of these directories, or mount a tmpfs with the option exec at "+
			"/tmp", u.uid)}
}

// places are the directories for unpacking, best first, in the process's naming.
func places(of procfs.Dir) []string {
	candidates := []string{diagnostics.TemporaryDir(of), "/tmp", "/var/tmp", "/dev/shm", "/run"}
	if cwd, err := of.Readlink("cwd"); err == nil {
		candidates = append(candidates, cwd)
	}
	if exe, err := of.Readlink("exe"); err == nil {
		candidates = append(candidates, path.Dir(exe))
	}
	var out []string
	for _, dir := range candidates {
		// The runtime gets the path in UTF-16. A relative path would depend on the working
		// directory, which can change.
		if dir = path.Clean(dir); path.IsAbs(dir) && utf8.ValidString(dir) && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}
