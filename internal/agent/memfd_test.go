package agent

import (
	"clrsnap/internal/testenv/role"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRingNoexec makes a ring with every setting of vm.memfd_noexec. Each PID namespace has its
// own setting, which can only be raised.
func TestRingNoexec(t *testing.T) {
	if _, err := os.Stat(memfdNoexec); err != nil || os.Geteuid() != 0 {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: it takes root, and Linux 6.3: %v", err)
	}
	cmd := ringMaker.Command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "2: sealed\n") { // any setting can be raised to 2
		t.Errorf("%v", err)
	}
	t.Logf("%s", out)
}

const memfdNoexec = "/proc/sys/vm/memfd_noexec"

// ringMaker runs in a new PID namespace.
var ringMaker = role.New("ringMaker", func(role.Args) error {
	for value := range 3 {
		if err := os.WriteFile(memfdNoexec, []byte(fmt.Sprint(value)), 0); err != nil {
			fmt.Printf("%d cannot be set here: %v\n", value, err) // the setting is higher already
			continue
		}
		r, file, err := newRing(minRing)
		if err != nil {
			return fmt.Errorf("memfd_noexec=%d: %w", value, err)
		}
		seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
		if want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL | unix.F_SEAL_EXEC; err != nil ||
			seals != want {
			return fmt.Errorf("memfd_noexec=%d: the seals are %#x, %v, want %#x", value, seals, err, want)
		}
		file.Close()
		r.close()
		if _, err := unix.MemfdCreate("test", unix.MFD_EXEC); (err != nil) != (value == 2) {
			return fmt.Errorf("memfd_noexec=%d: a file to be executed: %w", value, err)
		}
		fmt.Printf("%d: sealed\n", value)
	}
	return nil
})
