package inject

import (
	"bytes"
	"io"
	"strings"

	"clrsnap/internal/foreign"
	"clrsnap/internal/procfs"
)

// resident returns a process's own name of an identical library that an earlier agent has kept
// open in the process; "" if there is none. A loaded library stays mapped (agent/cflags,
// nodelete): loading the same file again adds nothing, but a new file would add one more copy
// each time.
func resident(of procfs.Dir, library []byte) string {
	fds, err := of.Names("fd")
	if err != nil {
		return ""
	}
	for _, fd := range fds {
		target, err := of.Readlink("fd/" + fd)
		if err != nil || !strings.Contains(target, "/"+folderPrefix) ||
			!strings.HasSuffix(target, "/"+libraryName+" (deleted)") {
			continue
		}
		if sameContent(of, "fd/"+fd, library) {
			return "/proc/self/fd/" + fd
		}
	}
	return ""
}

func sameContent(of procfs.Dir, file string, content []byte) bool {
	f, err := foreign.OpenAt(of.FD(), file, file) // the open file is the target's choice
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != int64(len(content)) {
		return false
	}
	got, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	return err == nil && bytes.Equal(got, content)
}
