package inject

import (
	"runtime"

	"clrsnap/internal/procfs"
	"clrsnap/internal/target/live"
)

// Check finds out whether the agent could be loaded into a process, as far as that
// can be told without loading it: its folder is made, and removed again. What it
// returns are the errors of Attach, and the path that was used.
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
