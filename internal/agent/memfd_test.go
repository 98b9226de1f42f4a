package agent

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRingNoexec makes a ring with every setting of vm.memfd_noexec. Each PID namespace has
// its own setting, which can only be raised.
func TestRingNoexec(t *testing.T) {
	const inside, setting = "CLRSNAP_TEST_NOEXEC", "/proc/sys/vm/memfd_noexec"
	if os.Getenv(inside) == "" {
		if _, err := os.Stat(setting); err != nil || os.Geteuid() != 0 {
			t.Skipf("SKIPPED, NOTHING WAS TESTED: it takes root, and Linux 6.3: %v", err)
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestRingNoexec$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for value := range 3 {
		if err := os.WriteFile(setting, []byte(fmt.Sprint(value)), 0); err != nil {
			t.Logf("memfd_noexec=%d cannot be set here: %v", value, err) // it is higher already
			continue
		}
		r, file, err := newRing(minRing)
		if err != nil {
			t.Errorf("memfd_noexec=%d: %v", value, err)
			continue
		}
		seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
		if want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL | unix.F_SEAL_EXEC; err != nil ||
			seals != want {
			t.Errorf("memfd_noexec=%d: the seals are %#x, %v, want %#x", value, seals, err, want)
		}
		file.Close()
		r.close()
		if _, err := unix.MemfdCreate("test", unix.MFD_EXEC); (err != nil) != (value == 2) {
			t.Errorf("memfd_noexec=%d: a file to be executed: %v", value, err)
		}
	}
}
