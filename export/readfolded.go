package export

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// isFolded recognises folded stacks by their first line: a stack without control
// characters, and a number.
func isFolded(all []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(all, " \t\r\n"), []byte("\n"))
	stack, _, ok := foldedLine(line)
	isControl := func(r rune) bool { return unicode.IsControl(r) && r < ' ' && r != '\t' }
	return ok && len(stack) > 0 && !bytes.ContainsFunc(stack, isControl) && utf8.Valid(line)
}

// foldedLine splits a line into a stack and the thousandths of the number after it: some tools write fractions.
func foldedLine(line []byte) (stack []byte, thousandths int64, ok bool) {
	line = bytes.TrimSpace(line)
	at := bytes.LastIndexAny(line, " \t")
	if at < 0 {
		return nil, 0, false
	}
	whole, fraction, isFraction := bytes.Cut(line[at+1:], []byte("."))
	n, err := strconv.ParseUint(string(whole), 10, 63)
	if err != nil || n > math.MaxInt64/2000 {
		return nil, 0, false
	}
	part := uint64(0)
	if isFraction {
		digits := append(bytes.Clone(fraction), "000"...)
		if part, err = strconv.ParseUint(string(digits[:3]), 10, 63); err != nil || len(fraction) == 0 ||
			bytes.ContainsFunc(fraction, func(r rune) bool { return r < '0' || r > '9' }) {
			return nil, 0, false
		}
	}
	return bytes.TrimSpace(line[:at]), int64(n*1000 + part), true
}

// readFolded reads folded stacks, one a line.
func readFolded(all []byte) (*profile.Recording, error) {
	m := foldedReader{importer: newImporter(), locations: map[string]int32{}}
	process, err := m.process(0)
	if err != nil {
		return nil, err
	}
	thread, err := m.thread(profile.RecordedThread{Process: process})
	if err != nil {
		return nil, err
	}
	unnamed := false // the mode of a stack is not named
	for n := 1; len(all) > 0; n++ {
		var line []byte
		line, all, _ = bytes.Cut(all, []byte("\n"))
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		stack, thousandths, ok := foldedLine(line)
		if !ok {
			return nil, fmt.Errorf("line %d has no number after its stack", n)
		}
		s := profile.Sample{Weight: thousandths, Thread: thread} // microseconds
		rooted := false
		if s.Mode, stack, rooted = foldedMode(stack); !rooted {
			unnamed = true
		}
		if s.Mode.Unit() != profile.Nanoseconds {
			s.Weight = (s.Weight + 500) / 1000
		}
		if s.Mode.OfWaits() {
			s.State = profile.Waiting
		}
		if err := m.stack(&s, stack); err != nil {
			return nil, err
		}
		if err := m.add(s); err != nil {
			return nil, err
		}
	}
	m.r.Notes = []string{"Folded stacks say neither when a sample was taken nor whether its thread waited."}
	if unnamed {
		m.r.Notes = []string{"Folded stacks have neither units nor times: " +
			"their numbers are read as microseconds of CPU time."}
	}
	return m.finish()
}

// foldedRoots are the frames from FoldedRoot.
var foldedRoots = func() (out [len(profile.Modes)]string) {
	for _, m := range profile.Modes {
		out[m] = FoldedRoot(m)
	}
	return out
}()

// foldedMode returns the mode in the first frame of a stack, as Folded writes it, and the rest of the
// stack; false: the frame names no mode, and the mode is CPU.
func foldedMode(stack []byte) (profile.Mode, []byte, bool) {
	if first, rest, more := bytes.Cut(stack, []byte(";")); more {
		for _, m := range profile.Modes {
			if string(first) == foldedRoots[m] {
				return m, rest, true
			}
		}
	}
	return profile.CPU, stack, false
}

type foldedReader struct {
	*importer
	locations map[string]int32 // by name
}

// stack sets the stack of a sample from its names, base first.
func (m *foldedReader) stack(s *profile.Sample, names []byte) error {
	if name, rest, more := bytes.Cut(names, []byte(";")); string(name) == incompleteFrame {
		s.Incomplete, names = true, rest
		if !more {
			return nil
		}
	}
	if string(names) == display.NoStack {
		return nil
	}
	for more := true; more; {
		var name []byte
		name, names, more = bytes.Cut(names, []byte(";"))
		at, err := m.location(name)
		if err == nil {
			err = m.enter(s, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *foldedReader) location(name []byte) (int32, error) {
	at, ok := m.locations[string(name)]
	if ok {
		return at, nil
	}
	if err := m.budget.takeText(string(name), "functions"); err != nil {
		return 0, err // before anything is kept
	}
	f, err := m.foldedFunction(string(name))
	if err == nil {
		at, err = m.importer.location(profile.Location{Function: f})
	}
	m.locations[string(name)] = at
	return at, err
}

// foldedFunction returns the index of a function. It understands the suffixes of Folded and
// stackcollapse-perf.pl --all for kernel functions, events and JIT-compiled code.
func (m *foldedReader) foldedFunction(name string) (int32, error) {
	name = strings.ReplaceAll(name, `\x3b`, ";")
	if kernel, ok := strings.CutSuffix(name, foldedKernel); ok {
		return m.put(functionOf(snapshot.Kernel, "", kernel, ""))
	}
	if event, ok := strings.CutSuffix(name, foldedEvent); ok {
		return m.put(functionOf(snapshot.Event, "", event, ""))
	}
	if jitted, ok := strings.CutSuffix(name, "_[j]"); ok {
		return m.put(functionOf(snapshot.Managed, "", jitted, ""))
	}
	return m.function(name, "")
}
