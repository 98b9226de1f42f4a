package testenv

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// A PerfMap is what the runtime itself says about which code lies where.
type PerfMap struct {
	Entries []PerfEntry // by Start, then by age

	maxEnd []uint64 // maxEnd[i] is the greatest End among Entries[:i+1]
}

// A PerfEntry is one line of a perf map. Lines are only ever added, so that an
// entry may be about code that is gone.
type PerfEntry struct {
	Start, End uint64 // End is the first address after it
	Name       string // as in "int32 [scenarios] Scenarios.Calls::Deep(int32)[QuickJitted]"
	Seq        int    // its line number, from 0: greater is newer
}

// PerfMap reads the program's perf map as it is now. The program must have been
// started with Options.PerfMap.
func (a *App) PerfMap() *PerfMap {
	a.tb.Helper()
	f, err := os.Open(filepath.Join(os.TempDir(), fmt.Sprintf("perf-%d.map", a.PID)))
	if err != nil {
		a.tb.Fatalf("perf map of %s: %v", a, err)
	}
	defer f.Close()
	m, err := ParsePerfMap(f)
	if err != nil {
		a.tb.Fatalf("perf map of %s: %v", a, err)
	}
	return m
}

// ParsePerfMap reads lines of the form "start size name", the numbers in
// hexadecimal. An unfinished last line is left out: the runtime is still writing it.
func ParsePerfMap(r io.Reader) (*PerfMap, error) {
	m := &PerfMap{}
	in := bufio.NewReader(r)
	for seq := 0; ; seq++ {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		e, err := parsePerfEntry(strings.TrimRight(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", seq+1, err)
		}
		e.Seq = seq
		m.Entries = append(m.Entries, e)
	}
	sort.SliceStable(m.Entries, func(i, j int) bool { return m.Entries[i].Start < m.Entries[j].Start })
	m.maxEnd = make([]uint64, len(m.Entries))
	var max uint64
	for i, e := range m.Entries {
		if e.End > max {
			max = e.End
		}
		m.maxEnd[i] = max
	}
	return m, nil
}

func parsePerfEntry(line string) (PerfEntry, error) {
	words := strings.SplitN(line, " ", 3)
	if len(words) != 3 {
		return PerfEntry{}, fmt.Errorf("%q: not a perf map entry", line)
	}
	start, err := strconv.ParseUint(strings.TrimPrefix(words[0], "0x"), 16, 64)
	if err != nil {
		return PerfEntry{}, err
	}
	size, err := strconv.ParseUint(strings.TrimPrefix(words[1], "0x"), 16, 64)
	if err != nil {
		return PerfEntry{}, err
	}
	return PerfEntry{Start: start, End: start + size, Name: words[2]}, nil
}

// Find returns the newest entry that ip lies in.
func (m *PerfMap) Find(ip uint64) (PerfEntry, bool) {
	var best PerfEntry
	found := false
	i := sort.Search(len(m.Entries), func(i int) bool { return m.Entries[i].Start > ip }) - 1
	for ; i >= 0 && m.maxEnd[i] > ip; i-- {
		if e := m.Entries[i]; ip < e.End && (!found || e.Seq > best.Seq) {
			best, found = e, true
		}
	}
	return best, found
}

// Lookup returns the name of the newest entry that ip lies in, or "".
func (m *PerfMap) Lookup(ip uint64) string {
	e, _ := m.Find(ip)
	return e.Name
}
