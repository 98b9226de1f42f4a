package testenv

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// Reuse starts a program with the process id of an ended process that was waited for. The program runs until the end of
// the test.
func Reuse(t testing.TB, pid int, name string, args ...string) {
	t.Helper()
	const last = "/proc/sys/kernel/ns_last_pid"
	for range 1000 {
		// Other programs of the machine are started meanwhile.
		if err := os.WriteFile(last, []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skipf("SKIPPED, NOTHING WAS TESTED: a process id cannot be reused: %v", err)
		}
		cmd := exec.Command(name, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := func() {
			cmd.Process.Kill() // the program has not ended by itself
			cmd.Wait()
		}
		if cmd.Process.Pid == pid {
			t.Cleanup(end)
			return
		}
		end()
	}
	t.Fatalf("no program got the process id %d", pid)
}
