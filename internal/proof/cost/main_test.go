package cost

import (
	"flag"
	"testing"

	"clrsnap/internal/testenv/role"
)

var (
	waysFlag  = flag.String("ways", ".*", "a regular expression: which ways to observe a program RecordCost compares")
	quietFlag = flag.Float64("quiet", 0.04, "how many CPUs other processes may use in a pair of windows that counts")
)

func TestMain(m *testing.M) { role.Main(m) }
