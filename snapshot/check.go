package snapshot

// Outcome is a check's meaning for stacks and recordings.
type Outcome uint8

// The outcomes.
const (
	Fine     Outcome = iota
	Degraded         // something will be missing, or cost more
	Blocking         // no stacks can be taken
)

// Check is one check of what stacks and recordings need.
type Check struct {
	Name    string // the thing that was checked
	Outcome Outcome
	Detail  string // the finding
	Remedy  string // what to do; empty if there is nothing to do, or if Detail or another check says so
}
