package inject

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrRights: the agent's folder and the diagnostics socket are the target's user's, and we
// may not act for that user.
var ErrRights = errors.New("it is another user's")

// forOthers are the capabilities that it takes to act for another user: its environment
// and its socket are for nobody else, and its folder is made with its rights.
var forOthers = []struct {
	number int
	name   string
}{
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
	{unix.CAP_SETGID, "CAP_SETGID"},
	{unix.CAP_SETUID, "CAP_SETUID"},
}

// checkRights returns an error if we may not act for the user of process pid.
func checkRights(pid int, u user) error {
	if u.uid == os.Geteuid() {
		return nil
	}
	caps, err := capabilities()
	if err != nil {
		return err
	}
	var missing []string
	for _, c := range forOthers {
		if caps&(1<<c.number) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &Error{PID: pid, Err: ErrRights, Detail: "clrsnap lacks " + strings.Join(missing, ", "),
		Remedy: fmt.Sprintf("run clrsnap as user %d or as root, or give it that as well as CAP_SYS_PTRACE", u.uid)}
}
