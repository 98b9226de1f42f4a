// Mutate finds out whether the tests find faults. Mutate puts the single faults of faults.txt into the code, one at a
// time, and runs the tests for each fault. Nothing in the tree changes: go build gets an overlay.
//
//	go run ./scripts/mutate [a regular expression for the files (all)]
//
// A test command must pass without the fault. Otherwise the command would find everything. For each fault mutate prints
// a line with the test that has found the fault. Mutate also lists packages with tests for which there is no fault.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	list  = "scripts/mutate/faults.txt"
	least = 95 // percent of the faults are found

	// A fault may keep a test from ending, or have it wait for what does not come. go test then stops the test: after
	// several times the time that it takes without the fault. A child of the test may go on nevertheless.
	longest  = 4 * time.Minute
	shortest = 90 * time.Second
	several  = 8
	stopped  = longest + time.Minute

	maxShown = 4000 // bytes of a test's output
)

// A fault is an entry of faults.txt. An entry has a line for the file, lines that begin with "- " for the old text,
// lines that begin with "+ " for the new text, and a line that begins with "! " for the layer and arguments of go test.
// Without the "! " line mutate tests the package of the file, in layer check.
type fault struct {
	file, old, new string
	tests          string
}

func (f *fault) String() string {
	text := f.file + ": " + f.old + " → " + f.new
	return strings.Join(strings.Fields(text), " ")
}

func main() {
	wanted := regexp.MustCompile(strings.Join(os.Args[1:], "|"))
	faults, err := readFaults()
	if err == nil {
		err = try(faults, wanted)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func readFaults() (out []fault, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		var f fault
		for line := range strings.Lines(block) {
			switch line = strings.TrimRight(line, "\n"); {
			case line == "" || line[0] == '#':
			case strings.HasPrefix(line, "- "):
				f.old = strings.TrimPrefix(f.old+"\n"+line[2:], "\n")
			case strings.HasPrefix(line, "+ "):
				f.new = strings.TrimPrefix(f.new+"\n"+line[2:], "\n")
			case strings.HasPrefix(line, "! "):
				f.tests = line[2:]
			default:
				f.file = line
			}
		}
		if f.file == "" {
			continue // comments
		}
		if f.tests == "" {
			f.tests = "check ./" + filepath.Dir(f.file)
		}
		out = append(out, f)
	}
	return out, nil
}

// try tries the faults in the wanted files. First try looks at all faults, so that a stale fault is seen soon.
func try(faults []fault, wanted *regexp.Regexp) error {
	var missed []string
	if err := stale(faults); err != nil {
		return err
	}
	without, err := packagesWithout(faults)
	if err != nil {
		return err
	}
	if without != nil {
		fmt.Printf("No fault is for the tests of: %s\n", strings.Join(without, " "))
	}
	dir, err := os.MkdirTemp("", "clrsnap-mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var wrong []string // results that say nothing about the tests
	late := 0          // faults that were found because a test did not end
	tried, good, takes := 0, map[string]bool{}, map[string]time.Duration{}
	for i := range faults {
		f := &faults[i]
		if !wanted.MatchString(f.file) {
			continue
		}
		if _, known := good[f.tests]; !known {
			began := time.Now()
			out, err := test(f.tests, "", longest)
			takes[f.tests] = time.Since(began)
			if good[f.tests] = err == nil; err != nil {
				wrong = append(wrong, fmt.Sprintf("without a fault the tests fail: %s: %v\n%s", f.tests, err,
					out[max(0, len(out)-maxShown):]))
			}
		}
		if !good[f.tests] {
			continue
		}
		began := time.Now()
		by, err := f.try(dir, min(max(several*takes[f.tests], shortest), longest))
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		tried++
		says := "found     "
		if by == "" {
			says, by = "NOT FOUND ", "! "+f.tests
			missed = append(missed, f.String())
		}
		if strings.Contains(by, "test timed out") {
			late++
		}
		fmt.Printf("%s%3.0f s  %s\n                 %s\n", says, time.Since(began).Seconds(), f, by)
	}
	if tried > 0 {
		found := tried - len(missed)
		fmt.Printf("%d of %d faults were found: %.1f %%, %d of them because a test did not end\n", found, tried,
			100*float64(found)/float64(tried), late)
	}
	if missed != nil {
		fmt.Printf("Not found:\n    %s\n", strings.Join(missed, "\n    "))
	}
	if wrong != nil {
		return errors.New(strings.Join(wrong, "\n"))
	}
	if 100*(tried-len(missed)) < least*tried {
		return fmt.Errorf("the tests find fewer than %d %% of the faults", least)
	}
	return nil
}

// stale is an error unless the texts of all faults are in their files.
func stale(faults []fault) error {
	var all []error
	for i := range faults {
		all = append(all, faults[i].stale())
	}
	return errors.Join(all...)
}

// stale is an error unless the text is in the file, once.
func (f *fault) stale() error {
	text, err := os.ReadFile(f.file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), f.old); n != 1 || f.old == "" {
		return fmt.Errorf("stale fault %s: the old text is there %d times", f, n)
	}
	return nil
}

// packagesWithout are the folders with tests but without a fault.
func packagesWithout(faults []fault) (out []string, err error) {
	has := map[string]bool{}
	for i := range faults {
		for _, arg := range strings.Fields(faults[i].tests) {
			has[filepath.Clean(arg)] = true
		}
	}
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if dir := filepath.Dir(path); strings.HasSuffix(path, "_test.go") && !has[dir] {
			has[dir] = true
			out = append(out, dir)
		}
		return err
	})
	slices.Sort(out)
	return out, err
}

// try has the tests look for the fault, for some time at most. by names the test that has found the fault; empty: no
// test has.
func (f *fault) try(dir string, most time.Duration) (by string, err error) {
	text, err := os.ReadFile(f.file)
	if err != nil {
		return "", err
	}
	in, err := filepath.Abs(f.file)
	if err != nil {
		return "", err
	}
	faulty, overlay := filepath.Join(dir, "faulty.go"), filepath.Join(dir, "overlay.json")
	replaced := strings.Replace(string(text), f.old, f.new, 1)
	if err := os.WriteFile(faulty, []byte(replaced), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{in: faulty}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	out, err := test(f.tests, overlay, most)
	if strings.Contains(out, "[build failed]") {
		return "", fmt.Errorf("%s: the build fails:\n%s", f, out)
	}
	switch {
	case err != nil:
		return finder(out), nil
	case strings.Contains(out, "SKIPPED, NOTHING WAS TESTED"):
		return "", fmt.Errorf("%s: it was not tried, since this machine lacks what the tests need: ! %s", f, f.tests)
	}
	return "", nil
}

var (
	failed = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	panics = regexp.MustCompile(`(?m)^panic: .*`)
)

// finder names the line of go test's output that tells the fault.
func finder(out string) string {
	if all := failed.FindAllStringSubmatch(out, -1); all != nil {
		return all[0][1]
	}
	if said := panics.FindString(out); said != "" {
		return said
	}
	return "a test without a good end: " + out[strings.LastIndexByte(strings.TrimSpace(out), '\n')+1:]
}

// test runs go test. Commands built by a test have the fault, too.
func test(tests, overlay string, most time.Duration) (out string, err error) {
	layer, args, _ := strings.Cut(tests, " ")
	ctx, cancel := context.WithTimeout(context.Background(), stopped)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-v", "-count", "1", "-failfast", "-timeout",
		most.String(), "-vet", "off", "-tags", layer}, strings.Fields(args)...)...)
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	if slices.Contains(strings.Fields(args), "-race") {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	b, err := cmd.CombinedOutput()
	if err == nil && !strings.Contains(string(b), "--- PASS") {
		err = errors.New("the test is missing in this layer, or skipped")
	}
	return string(b), err
}
