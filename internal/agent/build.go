package agent

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build compiles the agent's sources in dir with the C compiler cc and writes the library to out.
// It is for tests; the command carries a prebuilt library.
func Build(cc, dir, out string) error {
	sources, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("no C files in %s", dir)
	}
	args := append([]string{"@" + filepath.Join(dir, "cflags"), "-o", out}, sources...)
	if text, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the agent: %w\n%s", err, text)
	}
	return nil
}
