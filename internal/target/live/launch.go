package live

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Launch starts cmd, calls ready before the program executes its first instruction, and lets the
// program run. If cmd has been started (cmd.Process is not nil), the caller must wait for cmd,
// even if Launch fails.
func Launch(cmd *exec.Cmd, ready func(pid int) error) error {
	// Only the OS thread that started a traced program may detach the program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true // the program stops at the end of execve
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the program: %w", err)
	}
	pid := cmd.Process.Pid
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return fmt.Errorf("cannot wait for the program to start: %w", err)
		}
	}
	err := ready(pid)
	if e := unix.PtraceDetach(pid); e != nil && e != unix.ESRCH {
		err = errors.Join(err, fmt.Errorf("cannot let the program run: %w", e))
	}
	return err
}
