package link

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"clrsnap/internal/agent"
	"clrsnap/internal/session"
)

// ErrNoWaits is wrapped by the error about a runtime that does not report waits.
var ErrNoWaits = errors.New("only .NET 9 and later report waits")

// everything is all events that there are.
const everything = agent.Waits<<1 - 1

// HasWaits reports whether a runtime of this version reports waits. That of an unknown version is taken to.
func HasWaits(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err != nil || n >= firstWithWaits
}

const firstWithWaits = 9 // dotnet/runtime#94737

// checkWaits refuses waits of a process whose runtime does not report them. Who wants all events wants those
// that there are.
func checkWaits(p *session.Process, want *agent.Subscription) error {
	if want.Events&agent.Waits == 0 || want.Events == everything || p.Found == nil || HasWaits(p.Found.Version) {
		return nil
	}
	return fmt.Errorf("process %d runs .NET %s: %w", p.PID(), p.Found.Version, ErrNoWaits)
}
