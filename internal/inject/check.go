package inject

import (
	"runtime"

	"clrsnap/internal/procfs"
	"clrsnap/internal/target/live"
)

// Check finds out whether the agent could be loaded into a process, as far as possible without
// loading: Check makes the agent's folder, and removes the folder again. It returns the errors of
// Attach, and the path of the folder.
func Check(of procfs.Dir) (where string, err error) {
	library, err := Library(runtime.GOARCH)
	if err != nil {
		return "", err
	}
	p, err := live.OpenDir(of)
	if err != nil {
		return "", err
	}
	defer p.Close()
	f, err := prepare(p, library)
	if err != nil {
		return "", explain(p, err)
	}
	return f.path, f.Close()
}
