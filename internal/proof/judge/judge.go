// Package judge holds walks against a witness: the runtime's own perf map, with each piece of
// code, its name and its time. docs/correctness.md, Oracle 3, has the results.
//
// A walk took place between two times. A frame's name must be the name of one of three records: the newest
// record from before the walk that covers the ip (certain); a record written during the walk (during); or the
// next record after the walk, if another thread compiled the code (early). Other threads can call a method between
// its publication and its record (prestub.cpp, JitCompileCodeLocked); the compiling thread itself writes the
// record first. Method, start address, assembly and tier must agree.
//
// Unloading is not recorded, but two living pieces of code never share a byte. As soon as a record overlaps an
// older record, the older code no longer exists: its name anywhere in its old range is stale, and an error.
package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// A Judge compares frames with a jitdump as both come in, and keeps only figures.
type Judge struct {
	Tiers    map[string]int  // frames by tier
	Methods  map[string]bool // all generations of a method count as one
	Reused   map[string]int  // frames in code that replaced other code
	Replayed int             // kept frames whose place was used again; each must be found stale

	Blind    bool // the runtime writes no records: walks must be complete, but no frame can be checked
	CutNames bool // some names in the jitdump lack their last character

	dump     *testenv.JitDump
	log      *codeLog
	waiting  []sighting // not compared yet
	doubtful []doubt    // not right yet: the record may still be missing

	verdicts   map[verdict]int
	faults     map[string]*fault
	unrecorded map[string]int // unrecorded frames, by method
	kept       []keptFrame
	unnamed    int // frames without a name in walks that say why: the thread ran on, and its code was unloaded
	otherTiers int // frames whose tier alone differs from the map, for a known reason
}

// A sighting is a walk at some time from begin to end.
type sighting struct {
	th         *snapshot.Thread
	begin, end uint64
}

type doubt struct {
	sighting
	frame int
}

// A keptFrame was right once and will be stale.
type keptFrame struct {
	method string
	ip     uint64
	code   *code
}

// A fault is a kind of wrong frame, with one example.
type fault struct {
	times   int
	example string
}

const (
	patience  = 3_000_000_000 // ns that a record may come late: the writing thread may have no processor
	delivery  = 3_000_000_000 // ns from a walk's moment until the judge gets it, at most
	maxFaults = 20
	maxKept   = 2000
)

// New returns a judge of walks of the program that writes the jitdump.
func New(d *testenv.JitDump) *Judge {
	return &Judge{
		Tiers: map[string]int{}, Methods: map[string]bool{}, Reused: map[string]int{},
		dump: d, log: newCodeLog(), verdicts: map[verdict]int{},
		faults: map[string]*fault{}, unrecorded: map[string]int{},
	}
}

// Now is the time on a jitdump's clock.
func Now() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return uint64(ts.Nano())
}

// Saw takes a walk. The times must enclose the walk's moment as tightly as
// possible: the narrower, the stricter.
func (j *Judge) Saw(th *snapshot.Thread, begin, end uint64) {
	j.waiting = append(j.waiting, sighting{th, begin, end})
}

// Settle reads the runtime's new records and compares.
func (j *Judge) Settle() error {
	j.log.cuts = j.CutNames
	if err := j.dump.Next(j.log.add); err != nil {
		return err
	}
	now := Now()
	doubtful := j.doubtful
	j.doubtful = nil
	for _, d := range doubtful {
		j.frame(d.sighting, d.frame, d.end+patience < now)
	}
	for _, s := range j.waiting {
		for i := range s.th.Frames {
			switch f := &s.th.Frames[i]; {
			case f.Kind != snapshot.Managed:
			case f.Method == "" && (!s.th.Complete || recordedWithout(f)):
				j.unnamed++
			default:
				j.frame(s, i, false)
			}
		}
	}
	j.waiting = j.waiting[:0]
	j.log.horizon = now - delivery
	for _, d := range j.doubtful {
		j.log.horizon = min(j.log.horizon, d.begin)
	}
	return nil
}

// recordedWithout reports whether a recording says that the frame has no name.
func recordedWithout(f *snapshot.Frame) bool {
	return f.Display == profile.UnknownCode || f.Display == profile.UnloadedCode
}

// Finish waits for doubtful frames, and then tests the test.
func (j *Judge) Finish() error {
	for wait := true; wait; wait = len(j.doubtful) > 0 {
		if err := j.Settle(); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	j.replay()
	return nil
}

// frame compares the i-th frame of a walk; last says that there is no more time.
func (j *Judge) frame(s sighting, i int, last bool) {
	f := &s.th.Frames[i]
	v, c := j.log.judge(f.Method, f.IP, s.th.OSThreadID, s.begin, s.end)
	if j.Blind {
		v, last = unrecorded, true
	}
	if !v.right() && !last {
		j.doubtful = append(j.doubtful, doubt{s, i})
		return
	}
	if v == unknown && pinvokeStub(s.th.Frames, i) {
		v = unrecorded
	}
	j.verdicts[v]++
	j.Tiers[f.Tier]++
	if v == unrecorded {
		Note(j.unrecorded, f.Method)
		return
	}
	if !v.right() {
		said := "knows no code there"
		if c != nil {
			said = "says " + c.name.family
		}
		family := generation.ReplaceAllString(f.Method, "$1…")
		j.fault(fmt.Sprintf("%s frame: %q [%s]: the perf map %s", v, family, f.Tier, said), s.th, f, c)
		return
	}
	if v == certain && c.reused {
		j.Reused[c.name.origin()]++
	}
	if v == certain && len(j.kept) < maxKept && c.name.origin() != "other" &&
		(len(j.kept) == 0 || j.kept[len(j.kept)-1].code != c) {
		j.kept = append(j.kept, keptFrame{f.Method, f.IP, c})
	}
	j.Methods[c.name.family] = true
	j.details(s.th, f, c)
}

// pinvokeStub reports whether a frame may be the stub of a P/Invoke compiled ahead
// of time: the stub calls native code, or on its return the collector. The runtime
// takes the stub into use without a record (MethodDesc::DoPrestub in
// src/coreclr/vm/prestub.cpp; only PrepareILBasedCode writes a record).
func pinvokeStub(frames []snapshot.Frame, i int) bool {
	if frames[i].Tier != "ReadyToRun" {
		return false
	}
	return i == 0 || frames[i-1].Kind == snapshot.Native ||
		strings.HasPrefix(frames[i-1].Method, "System.Threading.Thread.<PollGC>")
}

// details compares the record's other facts: start, assembly and tier.
func (j *Judge) details(th *snapshot.Thread, f *snapshot.Frame, c *code) {
	if start := f.IP - f.Offset; start != c.Start {
		j.fault("wrong start of "+c.name.family, th, f, c)
	}
	// dynamic methods belong to no assembly, the map names their host
	if f.Module != c.name.assembly && !c.name.dynamic {
		j.fault(fmt.Sprintf("%s is in %q", c.name.family, f.Module), th, f, c)
	}
	if !slices.Contains(perfTiers[c.name.tier], f.Tier) && !j.knownTier(f, c) {
		j.fault(fmt.Sprintf("%s: tier %q, the perf map says %q", c.name.family, f.Tier, c.name.tier), th, f, c)
	}
}

// knownTier accepts tiers missing in .NET 10's data descriptor; for the tests' own
// code only with listed methods.
func (j *Judge) knownTier(f *snapshot.Frame, c *code) bool {
	list := map[string]map[string]bool{
		"tier-0 Optimized": switched, "optimized MinOptJitted": unoptimized,
	}[f.Tier+" "+c.name.tier]
	if list == nil || c.name.assembly == "scenarios" && !list[f.Method] && !list[c.name.family] {
		return false
	}
	j.otherTiers++
	return true
}

// fault notes a wrong frame. Beyond the first kinds only the number is kept.
func (j *Judge) fault(what string, th *snapshot.Thread, f *snapshot.Frame, c *code) {
	if j.faults[what] == nil && len(j.faults) >= maxFaults {
		what = "further faults"
	}
	if old := j.faults[what]; old != nil {
		old.times++
		return
	}
	said := ""
	if c != nil {
		said = fmt.Sprintf("\tthe record: %d %#x-%#x %s by %d, replaced %d\n",
			c.Time, c.Start, c.End, c.Name, c.TID, c.replaced)
	}
	j.faults[what] = &fault{1, fmt.Sprintf("%#x in thread %d %q (%s, %s):\n%s%s",
		f.IP, th.OSThreadID, th.Name, th.Mode, th.State, said, livetest.Text(th.Frames))}
}

// replay feeds again frames that were right at their time, but whose place has
// other code now: all must be stale.
func (j *Judge) replay() {
	now := Now()
	for _, k := range j.kept {
		newer := j.log.at(k.ip)
		if k.code.replaced == 0 || len(newer) > 0 && newer[len(newer)-1].name.method == k.method {
			continue // still there, or code with the same name: a stub, or a recompiled method
		}
		j.Replayed++
		if v, _ := j.log.judge(k.method, k.ip, 0, now, now); v.right() {
			j.faults["the judge finds what was replaced "+string(v)] = &fault{1,
				fmt.Sprintf("%s at %#x\n", k.method, k.ip)}
		}
	}
}

// Frames is the number of compared frames.
func (j *Judge) Frames() int {
	n := 0
	for _, of := range j.verdicts {
		n += of
	}
	return n
}

// Recorded is the number of frames held against a record of the runtime.
func (j *Judge) Recorded() int { return j.Frames() - j.verdicts[unrecorded] }

// Faults is the number of kinds of wrong frames.
func (j *Judge) Faults() int { return len(j.faults) }

// Report logs the figures, and fails the test for each fault.
func (j *Judge) Report(t testing.TB) {
	t.Helper()
	t.Logf("%d frames of %d methods compared: %s", j.Frames(), len(j.Methods), Figures(j.verdicts))
	if j.unnamed > 0 {
		t.Logf("%d frames without a name, in walks that say that their code was gone when it was to be named",
			j.unnamed)
	}
	t.Logf("frames by tier: %s; %d of a tier that .NET 10 does not tell", Figures(j.Tiers), j.otherTiers)
	t.Logf("the perf map has %d records; of code at reused addresses: %s; frames there: %s; "+
		"%d old frames fed again, all stale",
		j.log.records, Figures(j.log.reuses), Figures(j.Reused), j.Replayed)
	if len(j.unrecorded) > 0 {
		t.Logf("without a record, P/Invoke stubs compiled ahead of time: %s", Figures(j.unrecorded))
	}
	for what, f := range j.faults {
		t.Errorf("%d times: %s\n%s", f.times, what, f.example)
	}
}

// Figures writes a map in the order of its keys.
func Figures[K ~string](m map[K]int) string {
	var all []string
	for k, n := range m {
		all = append(all, fmt.Sprintf("%s %d", k, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// Note counts a finding. A long run must not collect without end.
func Note(counts map[string]int, what string) string {
	const most = 20
	if _, ok := counts[what]; !ok && len(counts) >= most {
		what = "further kinds"
	}
	counts[what]++
	return what
}
