package export

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"clrsnap/profile"
)

// foldedLine is one line of folded stacks: what can be on a stack, and a number.
var foldedLine = regexp.MustCompile(`^[^\x00-\x08\x0a-\x1f]*\S[ \t]\d+\s*$`)

func isFolded(all []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(all, " \t\r\n"), []byte("\n"))
	return utf8.Valid(line) && foldedLine.Match(line)
}

// readFolded reads folded stacks, one a line.
func readFolded(all []byte) (*profile.Recording, error) {
	m := newImporter()
	m.r.Notes = []string{"Folded stacks have no unit: their numbers are taken for microseconds of CPU time. When they were taken is not known."}
	thread := m.thread(profile.RecordedThread{Process: m.process(0)})
	for n := 1; len(all) > 0; n++ {
		var line []byte
		line, all, _ = bytes.Cut(all, []byte("\n"))
		text := strings.TrimSpace(string(line))
		if text == "" {
			continue
		}
		at := strings.LastIndexAny(text, " \t")
		us, err := strconv.ParseInt(text[at+1:], 10, 64)
		if at < 0 || err != nil || us < 0 || us > math.MaxInt64/2000 {
			return nil, fmt.Errorf("line %d has no number behind its stack", n)
		}
		names, incomplete := withoutMark(strings.Split(strings.TrimSpace(text[:at]), ";"))
		s := profile.Sample{Weight: us * int64(time.Microsecond), Thread: thread, Incomplete: incomplete, Node: m.foldedStack(names)}
		if err := m.add(s); err != nil {
			return nil, err
		}
	}
	return m.finish()
}

// foldedStack returns the node of a stack, base first.
func (m *importer) foldedStack(names []string) int32 {
	node := int32(0)
	for _, name := range names {
		if name == emptyStack && len(names) == 1 {
			break
		}
		node = m.b.Child(node, m.b.Location(profile.Location{Function: m.foldedFunction(name)}))
	}
	return node
}

// foldedFunction heeds what follows a name: stackcollapse-perf.pl --all marks
// functions of the kernel and of a JIT compiler.
func (m *importer) foldedFunction(name string) int32 {
	name = strings.ReplaceAll(name, `\x3b`, ";")
	if kernel, ok := strings.CutSuffix(name, foldedKernel); ok {
		return m.b.Function(functionOf(profile.Kernel, "", kernel, ""))
	}
	if event, ok := strings.CutSuffix(name, foldedEvent); ok {
		return m.b.Function(functionOf(profile.Event, "", event, ""))
	}
	if jitted, ok := strings.CutSuffix(name, "_[j]"); ok {
		return m.b.Function(functionOf(profile.Managed, "", jitted, ""))
	}
	return m.function(name, "")
}
