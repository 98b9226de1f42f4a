package oracle

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/livetest"
	"clrsnap/internal/target/live"
)

// A Comparison compares walks of the CLR with walks from outside, and counts.
type Comparison struct {
	Process *clrsnap.Process

	Walks, Late                 int // of threads; called-off stops
	Frames, Runs, Deepest       int // equal frames, how many of them are runs of unmanaged frames
	Registers, UnknownRegisters map[string]int
	Results, Kinds              map[string]int
	Newest                      map[string]int // Frames of threads in preemptive mode
	Methods                     map[clrsnap.FunctionID]bool
	Places                      map[uint64]bool
	Unknown                     []*Difference // differences in no table
}

// MaxUnknown ends the comparison early, after so many differences without a table.
const MaxUnknown = 20

// New returns an empty comparison.
func New(p *clrsnap.Process) *Comparison {
	return &Comparison{
		Process: p, Registers: map[string]int{}, UnknownRegisters: map[string]int{},
		Results: map[string]int{}, Kinds: map[string]int{}, Newest: map[string]int{},
		Methods: map[clrsnap.FunctionID]bool{}, Places: map[uint64]bool{},
	}
}

// Suspend captures a thread. On a busy machine a stop that takes too long may be
// called off; a new attempt finds the thread at the same moment.
func (c *Comparison) Suspend(id clrsnap.ThreadID) (s *clrsnap.Suspension, err error) {
	for range 100 {
		s, err = c.Process.Suspend(id)
		if !errors.Is(err, live.ErrWatchdog) && !errors.Is(err, live.ErrNotStopping) {
			return s, err
		}
		c.Late++
	}
	return nil, err
}

// A Difference is a thread with its two walks; What says how they differ.
type Difference struct {
	Name       string
	CLR        *agent.Thread
	Ours       []livetest.Call
	Err        error
	Kinds      []string // of the runtime's Frames, newest first
	Preemptive bool
	State      string // the Frames and the mode of the thread

	What  string
	Stack string // of the thread, by our own complete walk
	Again string // how the second pair of walks came out
}

// NonVolatile are a context's comparable registers besides the stack pointer, by
// their numbers in instructions.
var NonVolatile = []struct {
	Name string
	Reg  uint8
	Of   func(*agent.Frame) uint64
}{
	{"rbp", 5, func(f *agent.Frame) uint64 { return f.RBP }},
	{"rbx", 3, func(f *agent.Frame) uint64 { return f.RBX }},
	{"r12", 12, func(f *agent.Frame) uint64 { return f.R12 }},
	{"r13", 13, func(f *agent.Frame) uint64 { return f.R13 }},
	{"r14", 14, func(f *agent.Frame) uint64 { return f.R14 }},
	{"r15", 15, func(f *agent.Frame) uint64 { return f.R15 }},
}

// RSP is the number of the stack pointer.
const RSP = 4

// Compare sets d.What if the two walks are not equal: in their results, or in
// number, order, FunctionID, ip, stack pointer or a non-volatile register of
// any callback.
func (c *Comparison) Compare(d *Difference) {
	c.Walks++
	for _, k := range d.Kinds {
		c.Kinds[k]++
	}
	if len(d.Kinds) > 0 && d.Preemptive {
		c.Newest[d.Kinds[0]]++
	}
	pair, ok := samePair(d)
	if !ok {
		d.What = "the results differ: " + pair
		return
	}
	c.Results[pair]++
	for i := range min(len(d.Ours), len(d.CLR.Frames)) {
		if d.What = c.callback(&d.Ours[i], &d.CLR.Frames[i]); d.What != "" {
			d.What = fmt.Sprintf("callback %d: %s", i, d.What)
			return
		}
	}
	if a, b := len(d.Ours), len(d.CLR.Frames); a != b {
		d.What = fmt.Sprintf("%d callbacks instead of %d", a, b)
	}
}

// samePair names the two results, and says whether they mean the same.
//
// One pair of different results does: for a thread without managed frames
// CoreCLR says E_FAIL, because Thread::StackWalkFramesEx (stackwalk.cpp)
// answers SWA_FAILED if there was nothing to visit; the documentation, and this
// library, say S_OK. Neither makes a callback.
func samePair(d *Difference) (string, bool) {
	clr, ours := clrsnap.HRESULT(d.CLR.Result), clrsnap.S_OK
	if d.Err != nil {
		var e *clrsnap.Error
		if !errors.As(d.Err, &e) {
			return d.Err.Error(), false
		}
		ours = e.HRESULT
	}
	none := len(d.Ours) == 0 && len(d.CLR.Frames) == 0
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
func (c *Comparison) callback(ours *livetest.Call, clr *agent.Frame) string {
	sp, ok := ours.Context.Reg(RSP)
	switch {
	case uint64(ours.ID) != clr.Function:
		return fmt.Sprintf("function %v instead of %#x", ours.ID, clr.Function)
	case ours.IP != clr.IP || clr.IP != clr.ContextIP || uint64(ours.Context.IP) != clr.IP:
		return fmt.Sprintf("ip %#x (context %v) instead of %#x (context %#x)",
			ours.IP, ours.Context.IP, clr.IP, clr.ContextIP)
	case !ok || sp != clr.SP:
		return fmt.Sprintf("sp %#x instead of %#x", sp, clr.SP)
	}
	for _, r := range NonVolatile {
		v, ok := ours.Context.Reg(r.Reg)
		if !ok {
			c.UnknownRegisters[r.Name]++
			continue
		}
		if v != r.Of(clr) {
			return fmt.Sprintf("%s %#x instead of %#x", r.Name, v, r.Of(clr))
		}
		c.Registers[r.Name]++
	}
	c.count(ours)
	return ""
}

func (c *Comparison) count(ours *livetest.Call) {
	c.Frames++
	if ours.ID == 0 {
		c.Runs++
	} else {
		c.Methods[ours.ID] = true
	}
	c.Places[ours.IP] = true
}

// Counts writes a map in the order of its keys.
func Counts(m map[string]int) string {
	var list []string
	for k, n := range m {
		list = append(list, fmt.Sprintf("%s %d", k, n))
	}
	sort.Strings(list)
	return strings.Join(list, "; ")
}

// SideBySide prints both lists, and marks unequal callbacks.
func (c *Comparison) SideBySide(d *Difference) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CLR: %v, %d callbacks; ours: %v, %d callbacks\n",
		clrsnap.HRESULT(d.CLR.Result), len(d.CLR.Frames), d.Err, len(d.Ours))
	for i := range max(len(d.Ours), len(d.CLR.Frames)) {
		if i == 100 {
			fmt.Fprintf(&b, "…\n")
			break
		}
		var clr, ours string
		if i < len(d.CLR.Frames) {
			f := &d.CLR.Frames[i]
			clr = fmt.Sprintf("%#x sp %#x bp %#x %s", f.IP, f.SP, f.RBP, c.Method(clrsnap.FunctionID(f.Function)))
		}
		if i < len(d.Ours) {
			call := &d.Ours[i]
			ours = fmt.Sprintf("%#x sp %#x bp %#x %s", call.IP, call.Context.Regs[RSP], call.Context.Regs[5],
				c.Method(call.ID))
		}
		mark := ' '
		if clr != ours {
			mark = '*'
		}
		fmt.Fprintf(&b, "%c %-100s | %s\n", mark, clr, ours)
	}
	return b.String()
}

// Method names a method.
func (c *Comparison) Method(id clrsnap.FunctionID) string {
	if id == 0 {
		return "(unmanaged)"
	}
	n, err := c.Process.FunctionName(id)
	if err != nil {
		return id.String()
	}
	return n.Exact
}
