package oracle

import (
	"testing"
	"time"
)

// knownDifference is an understood and accepted difference.
type knownDifference struct {
	name string
	is   func(*Difference) bool
	why  string // and where in the runtime's source
}

// knownDifferences is the whole list.
var knownDifferences = []knownDifference{}

// differs puts a difference into the table of known differences, or keeps the
// difference.
func (o *oracle) differs(d, again *Difference) {
	for _, k := range knownDifferences {
		if k.is(d) {
			o.known[k.name]++
			return
		}
	}
	d.Again = "equal, although nothing has changed"
	if again.What != "" {
		d.Again = again.What
	}
	o.Unknown = append(o.Unknown, d)
}

func (o *oracle) report(t *testing.T) {
	t.Helper()
	t.Logf("%d frames compared in %d walks of threads in %d suspensions: "+
		"%d frames of blocked scenarios, %d of others; %d are runs of unmanaged frames; the deepest stack has %d",
		o.Frames, o.Walks, o.rounds, o.ofBlocked, o.Frames-o.ofBlocked, o.Runs, o.Deepest)
	t.Logf("%d methods at %d different addresses; Frames met: %s; newest ones in preemptive mode: %s",
		len(o.Methods), len(o.Places), Counts(o.Kinds), Counts(o.Newest))
	t.Logf("registers equal, besides ip and sp: %s; not compared, because our walk does not claim to know them: %s",
		Counts(o.Registers), Counts(o.UnknownRegisters))
	t.Logf("results: %s", Counts(o.Results))
	n := time.Duration(max(1, o.rounds))
	t.Logf("suspending took %v, the CLR's walk of all threads %v, the longest hold %v; "+
		"%d times a garbage collection was in the way; %d stops were called off, "+
		"%d rounds cut short because the suspension ran out of time",
		o.suspended/n, o.walked/n, o.longestHold, o.postponed, o.Late, o.cut)
	t.Logf("threads in native code that had moved between the two walks: %d: %s", sum(o.moved), Counts(o.moved))
	for _, k := range knownDifferences {
		t.Logf("known difference %q: %d times: %s", k.name, o.known[k.name], k.why)
	}
	for _, d := range o.Unknown {
		t.Errorf("thread %d %q: %s; once more: %s\n%s\n%s\nthe whole stack:\n%s",
			d.CLR.OSID, d.Name, d.What, d.Again, d.State, o.SideBySide(d), d.Stack)
	}
	if o.Frames == 0 || len(o.Kinds) == 0 {
		t.Error("nothing was compared")
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}
