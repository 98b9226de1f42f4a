package inject

import (
	"bytes"
	"io"
	"strings"

	"clrsnap/internal/foreign"
	"clrsnap/internal/procdir"
)

// resident returns the path, as the process sees it, of the library that an earlier agent
// has kept open there; "" if there is none, or another version of it. A library stays
// mapped once it was loaded (agent/cflags, nodelete): loading the same file again adds no
// copy, a new file would add one each time.
func resident(of procdir.Dir, library []byte) string {
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

func sameContent(of procdir.Dir, file string, content []byte) bool {
	f, err := foreign.OpenAt(of.FD(), file, file) // the target decides what is open there
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
