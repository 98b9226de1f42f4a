package early

import (
	"os"
	"syscall"
	"testing"
)

// TestBegun: the main thread of this test has the highest nice value, if that is permitted.
func TestBegun(t *testing.T) {
	if !Begun() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: no right to raise the priority, or somebody has chosen a priority")
	}
	defer syscall.Setpriority(syscall.PRIO_PROCESS, os.Getpid(), 0)
	if got, err := syscall.Getpriority(syscall.PRIO_PROCESS, os.Getpid()); got != notNice-highest || err != nil {
		t.Errorf("getpriority says %d, %v", got, err)
	}
}
