package link

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"clrsnap/internal/agent"
	"clrsnap/internal/session"
)

// ErrNoWaits is wrapped by the error about a runtime without events for waits.
var ErrNoWaits = errors.New("only .NET 9 and later report waits")

// everything has all events.
const everything = agent.Waits<<1 - 1

// HasWaits reports whether a runtime of the version reports waits. An unknown version counts as reporting waits.
func HasWaits(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err != nil || n >= firstWithWaits
}

const firstWithWaits = 9 // dotnet/runtime#94737

// checkWaits refuses a subscription to waits for a process whose runtime does not report waits. A subscription to
// everything means all events of the runtime, and is not refused.
func checkWaits(p *session.Process, want *agent.Subscription) error {
	if want.Events&agent.Waits == 0 || want.Events == everything || p.Found == nil || HasWaits(p.Found.Version) {
		return nil
	}
	return fmt.Errorf("process %d runs .NET %s: %w", p.PID(), p.Found.Version, ErrNoWaits)
}
