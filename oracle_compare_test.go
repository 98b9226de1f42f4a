package clrsnap_test

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/agent"
)

// callback is one call of StackSnapshotCallback by the walk from outside.
type callback struct {
	id  clrsnap.FunctionID
	ip  uint64
	ctx clrsnap.Context
}

// difference is a thread with its two walks; what says how they differ.
type difference struct {
	name       string
	clr        *agent.Thread
	ours       []callback
	err        error
	kinds      []string // of the runtime's Frames, newest first
	preemptive bool
	state      string // the Frames and the mode of the thread

	what  string
	stack string // of the thread, by our own complete walk
	again string // how the second pair of walks came out
}

// knownDifference is a difference that is understood and accepted.
type knownDifference struct {
	name string
	is   func(*difference) bool
	why  string // and where in the runtime's source
}

// knownDifferences is the whole list.
var knownDifferences = []knownDifference{}

// nonVolatile are the registers of a context, besides the stack pointer, that can
// be compared, by the number that they have in instructions.
var nonVolatile = []struct {
	name string
	reg  uint8
	of   func(*agent.Frame) uint64
}{
	{"rbp", 5, func(f *agent.Frame) uint64 { return f.RBP }},
	{"rbx", 3, func(f *agent.Frame) uint64 { return f.RBX }},
	{"r12", 12, func(f *agent.Frame) uint64 { return f.R12 }},
	{"r13", 13, func(f *agent.Frame) uint64 { return f.R13 }},
	{"r14", 14, func(f *agent.Frame) uint64 { return f.R14 }},
	{"r15", 15, func(f *agent.Frame) uint64 { return f.R15 }},
}

const rsp = 4

// compare sets d.what if the two walks are not equal: in their results, or in
// number, order, FunctionID, ip, stack pointer or a non-volatile register of any
// callback.
func (o *oracle) compare(d *difference) {
	o.threads++
	for _, k := range d.kinds {
		o.kinds[k]++
	}
	if len(d.kinds) > 0 && d.preemptive {
		o.newest[d.kinds[0]]++
	}
	pair, ok := samePair(d)
	if !ok {
		d.what = "the results differ: " + pair
		return
	}
	o.results[pair]++
	for i := range min(len(d.ours), len(d.clr.Frames)) {
		if d.what = o.callback(&d.ours[i], &d.clr.Frames[i]); d.what != "" {
			d.what = fmt.Sprintf("callback %d: %s", i, d.what)
			return
		}
	}
	if a, b := len(d.ours), len(d.clr.Frames); a != b {
		d.what = fmt.Sprintf("%d callbacks instead of %d", a, b)
	}
}

// samePair names the two results, and says whether they mean the same.
//
// One pair of different ones does: of a thread without managed frames CoreCLR
// says E_FAIL, because Thread::StackWalkFramesEx (stackwalk.cpp) answers
// SWA_FAILED if there was nothing to visit; the documentation, and this library,
// say S_OK. Neither makes a callback.
func samePair(d *difference) (string, bool) {
	clr, ours := clrsnap.HRESULT(d.clr.Result), clrsnap.S_OK
	if d.err != nil {
		var e *clrsnap.Error
		if !errors.As(d.err, &e) {
			return d.err.Error(), false
		}
		ours = e.HRESULT
	}
	none := len(d.ours) == 0 && len(d.clr.Frames) == 0
	same := ours == clr || ours == clrsnap.S_OK && clr == clrsnap.E_FAIL && none
	if !same {
		return fmt.Sprintf("CLR %v, ours %v", clr, ours), false
	}
	pair := fmt.Sprintf("CLR %v, ours %v", clr, ours)
	if none {
		pair += ", no callbacks"
	}
	return pair, true
}

// callback compares one pair of callbacks and counts it.
func (o *oracle) callback(ours *callback, clr *agent.Frame) string {
	sp, ok := ours.ctx.Reg(rsp)
	switch {
	case uint64(ours.id) != clr.Function:
		return fmt.Sprintf("function %v instead of %#x", ours.id, clr.Function)
	case ours.ip != clr.IP || clr.IP != clr.ContextIP || uint64(ours.ctx.IP) != clr.IP:
		return fmt.Sprintf("ip %#x (context %v) instead of %#x (context %#x)", ours.ip, ours.ctx.IP, clr.IP, clr.ContextIP)
	case !ok || sp != clr.SP:
		return fmt.Sprintf("sp %#x instead of %#x", sp, clr.SP)
	}
	for _, r := range nonVolatile {
		v, ok := ours.ctx.Reg(r.reg)
		if !ok {
			o.unknownRegisters[r.name]++
			continue
		}
		if v != r.of(clr) {
			return fmt.Sprintf("%s %#x instead of %#x", r.name, v, r.of(clr))
		}
		o.registers[r.name]++
	}
	o.count(ours)
	return ""
}

func (o *oracle) count(c *callback) {
	o.frames++
	if c.id == 0 {
		o.runs++
	} else {
		o.methods[c.id] = true
	}
	o.places[c.ip] = true
}

// differs puts a difference into the table of known ones, or keeps it.
func (o *oracle) differs(d, again *difference) {
	for _, k := range knownDifferences {
		if k.is(d) {
			o.known[k.name]++
			return
		}
	}
	d.again = "equal, although nothing has changed"
	if again.what != "" {
		d.again = again.what
	}
	o.unknown = append(o.unknown, d)
}

func (o *oracle) report(t *testing.T) {
	t.Helper()
	t.Logf("%d frames compared in %d walks of threads in %d suspensions: %d frames of blocked scenarios, %d of others; %d are runs of unmanaged frames; the deepest stack has %d",
		o.frames, o.threads, o.rounds, o.ofBlocked, o.frames-o.ofBlocked, o.runs, o.deepest)
	t.Logf("%d methods at %d different addresses; Frames met: %s; newest ones in preemptive mode: %s", len(o.methods), len(o.places), counts(o.kinds), counts(o.newest))
	t.Logf("registers equal, besides ip and sp: %s; not compared, because our walk does not claim to know them: %s", counts(o.registers), counts(o.unknownRegisters))
	t.Logf("results: %s", counts(o.results))
	n := time.Duration(max(1, o.rounds))
	t.Logf("suspending took %v, the CLR's walk of all threads %v, the longest hold %v; %d times a garbage collection was in the way; %d stops were called off, %d rounds cut short because the suspension ran out of time", o.suspended/n, o.walked/n, o.longestHold, o.postponed, o.late, o.cut)
	t.Logf("threads in native code that had moved between the two walks: %d: %s", sum(o.moved), counts(o.moved))
	for _, k := range knownDifferences {
		t.Logf("known difference %q: %d times: %s", k.name, o.known[k.name], k.why)
	}
	for _, d := range o.unknown {
		t.Errorf("thread %d %q: %s; once more: %s\n%s\n%s\nthe whole stack:\n%s", d.clr.OSID, d.name, d.what, d.again, d.state, o.sideBySide(d), d.stack)
	}
	if o.frames == 0 || len(o.kinds) == 0 {
		t.Error("nothing was compared")
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func counts(m map[string]int) string {
	var list []string
	for k, n := range m {
		list = append(list, fmt.Sprintf("%s %d", k, n))
	}
	sort.Strings(list)
	return strings.Join(list, "; ")
}

// sideBySide prints both lists, those callbacks that are not equal marked.
func (o *oracle) sideBySide(d *difference) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CLR: %v, %d callbacks; ours: %v, %d callbacks\n", clrsnap.HRESULT(d.clr.Result), len(d.clr.Frames), d.err, len(d.ours))
	for i := range max(len(d.ours), len(d.clr.Frames)) {
		if i == 100 {
			fmt.Fprintf(&b, "…\n")
			break
		}
		var clr, ours string
		if i < len(d.clr.Frames) {
			f := &d.clr.Frames[i]
			clr = fmt.Sprintf("%#x sp %#x bp %#x %s", f.IP, f.SP, f.RBP, o.method(clrsnap.FunctionID(f.Function)))
		}
		if i < len(d.ours) {
			c := &d.ours[i]
			ours = fmt.Sprintf("%#x sp %#x bp %#x %s", c.ip, c.ctx.Regs[rsp], c.ctx.Regs[5], o.method(c.id))
		}
		mark := ' '
		if clr != ours {
			mark = '*'
		}
		fmt.Fprintf(&b, "%c %-100s | %s\n", mark, clr, ours)
	}
	return b.String()
}

func (o *oracle) method(id clrsnap.FunctionID) string {
	if id == 0 {
		return "(unmanaged)"
	}
	n, err := o.p.FunctionName(id)
	if err != nil {
		return id.String()
	}
	return n.Exact
}
