package live

import (
	"fmt"

	"clrsnap/internal/mounts"
	"clrsnap/internal/procfs"
)

// MayBlock returns a mounts.ErrMayBlock if process pid can block its readers for ever. It reads
// only the process's lists of mappings and mounts, and nothing that could block. For a process
// that cannot be opened MayBlock returns nil.
func MayBlock(pid int) error {
	dir, err := procfs.Open(pid)
	if err != nil {
		return nil
	}
	defer dir.Close()
	maps, err := dir.ReadInto("maps", nil)
	if err != nil {
		return nil
	}
	return mayBlock(dir, maps)
}

func mayBlock(dir procfs.Dir, maps []byte) error {
	if err := new(mounts.Checker).Check(dir, maps); err != nil {
		return fmt.Errorf("a look at process %d can wait for ever: %w", dir.PID(), err)
	}
	return nil
}
