package judge

import (
	"strings"

	"clrsnap/internal/testenv"
)

// code is the runtime's record about a piece of code, and the fate of the code.
type code struct {
	testenv.CodeRecord
	name     perfName
	reused   bool   // the code replaced code with another name
	replaced uint64 // when other code took some of its place; 0: not yet
}

// codeLog knows the code at each place and time, from the runtime's records.
//
// The runtime never says that code is unloaded. But two pieces of code never
// share a byte: when a record of overlapping code appears, the older code had
// been unloaded by the time of the record.
type codeLog struct {
	pages   map[uint64][]*code // by address / codePage, the oldest first
	horizon uint64             // nothing need be known about code replaced before
	records int
	reuses  map[string]int // how often code took the place of other code, by kind
	cuts    bool           // some names lack their last character
}

const codePage = 1 << 12

func newCodeLog() *codeLog {
	return &codeLog{pages: map[uint64][]*code{}, reuses: map[string]int{}}
}

// add takes the next record. The same code may be recorded more than once.
func (l *codeLog) add(r testenv.CodeRecord) {
	c := &code{CodeRecord: r, name: parsePerfName(r.Name)}
	l.records++
	for page := r.Start / codePage; page <= (r.End-1)/codePage; page++ {
		kept := l.pages[page][:0:0]
		for _, old := range l.pages[page] {
			if old.Start < c.End && c.Start < old.End {
				if old.replaced == 0 {
					old.replaced = r.Time
				}
				c.reused = c.reused || old.Name != c.Name
			}
			if old.replaced == 0 || old.replaced >= l.horizon {
				kept = append(kept, old)
			}
		}
		l.pages[page] = append(kept, c)
	}
	if c.reused {
		l.reuses[c.name.origin()]++
	}
}

// at lists the recorded code at ip, the oldest first.
func (l *codeLog) at(ip uint64) []*code {
	var all []*code
	for _, c := range l.pages[ip/codePage] {
		if c.Start <= ip && ip < c.End {
			all = append(all, c)
		}
	}
	return all
}

// verdict says whether a frame is right.
type verdict string

// The verdicts. The first three are right.
const (
	certain verdict = "certain" // the newest record from before the walk has the frame's name
	during  verdict = "during"  // a record written during the walk has the name
	early   verdict = "early"   // a later record by another thread has the name
	stale   verdict = "stale"   // only records of code unloaded before the walk have the name
	wrong   verdict = "wrong"   // no record has the name
	unknown verdict = "unknown" // there is no record at all

	unrecorded verdict = "unrecorded" // no record is possible: neither right nor wrong
)

func (v verdict) right() bool { return v == certain || v == during || v == early }

// judge compares a name with the records: the frame was found at ip on the stack
// of thread tid at some time from begin to end.
//
// A thread that compiles a method writes the record before it runs the method.
// But other threads can call the method as soon as the method is compiled, and
// may execute it before the record is there (JitCompileCodeLocked in
// src/coreclr/vm/prestub.cpp publishes, its caller writes the record). Hence
// "early", for code compiled by other threads only.
func (l *codeLog) judge(method string, ip uint64, tid int, begin, end uint64) (verdict, *code) {
	all := l.at(ip)
	if len(all) == 0 {
		return unknown, nil
	}
	before := -1 // the newest record from before the walk
	for i, c := range all {
		if c.Time < begin {
			before = i
		}
	}
	if before >= 0 {
		if c := all[before]; l.names(c, method) && (c.replaced == 0 || c.replaced >= begin) {
			return certain, c
		}
	}
	next := before + 1
	for ; next < len(all) && all[next].Time <= end; next++ {
		if l.names(all[next], method) {
			return during, all[next]
		}
	}
	if next < len(all) && l.names(all[next], method) && all[next].TID != tid {
		return early, all[next]
	}
	for _, c := range all[:before+1] {
		if l.names(c, method) {
			return stale, all[before]
		}
	}
	return wrong, all[max(0, before)]
}

// names reports whether a record is of a method.
func (l *codeLog) names(c *code, method string) bool {
	return c.name.method == method || l.cuts && method != "" && c.name.method == method[:len(method)-1]
}

// origin is the origin of unloadable code, by its name.
func (n *perfName) origin() string {
	switch {
	case n.dynamic:
		return "dynamic method or stub"
	case strings.HasPrefix(n.method, "Scenarios.Gen"), strings.HasPrefix(n.method, "Scenarios.Plugin"):
		return "collectible context"
	case strings.HasPrefix(n.method, "Emitted."):
		return "collectible emitted assembly"
	}
	return "other"
}
