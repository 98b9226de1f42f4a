package inject

import (
	"runtime"

	"clrsnap/internal/procdir"
	"clrsnap/internal/target/live"
)

// Check checks whether the agent could be loaded into a process, as far as that is
// possible without loading it: its folder is made, and removed again. It returns the
// errors of Attach, and the path that was used.
func Check(of procdir.Dir) (where string, err error) {
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
