package inject

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"clrsnap/internal/foreign"
)

// resident returns the name by which process pid itself has a library that an earlier
// agent has kept open there; "" if it has none that is the same. What has been loaded
// once stays mapped (agent/cflags, nodelete): loading the same file again adds nothing,
// a new file would add one more copy each time.
func resident(pid int, library []byte) string {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return ""
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || !strings.Contains(target, "/"+folderPrefix) || !strings.HasSuffix(target, "/"+libraryName+" (deleted)") {
			continue
		}
		if sameContent(fd, library) {
			return "/proc/self/fd/" + filepath.Base(fd)
		}
	}
	return ""
}

func sameContent(file string, content []byte) bool {
	f, err := foreign.Open(file) // what is open there is the target's choice
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
