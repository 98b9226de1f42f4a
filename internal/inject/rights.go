package inject

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"clrsnap/internal/target/live"
)

// ErrRights: the agent's folder and the diagnostics socket belong to the target's user, and we
// may not act for that user.
var ErrRights = errors.New("the process belongs to another user")

// checkRights returns an error if we may not act for the user of process pid.
func checkRights(pid int, u user) error {
	if u.uid == os.Geteuid() {
		return nil
	}
	caps, err := capabilities()
	if err != nil {
		return err
	}
	missing, _ := live.CapabilityNames(live.ForOthers &^ caps)
	if len(missing) == 0 {
		return nil
	}
	return &Error{PID: pid, Err: ErrRights, Detail: "clrsnap lacks " + strings.Join(missing, ", "),
		Remedy: fmt.Sprintf("run clrsnap as user %d or as root, or give clrsnap these capabilities and CAP_SYS_PTRACE",
			u.uid)}
}
