// Mutate finds out whether the tests find faults. It puts the single faults of faults.txt into the code, one at a time,
// and runs the tests that should find each. Nothing in the tree changes: go build gets an overlay.
//
//	go run ./scripts/mutate [a regular expression for the files (all)]
//
// A test command must pass without the fault. Otherwise it would find everything.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	list  = "scripts/mutate/faults.txt"
	least = 95 // percent of the faults are found
)

// A fault is one of faults.txt. There, it has a line for the file, lines that begin with "- " for the text that is
// replaced, lines that begin with "+ " for what replaces it, and one that begins with "! " for arguments of go test,
// after the layer: the package of the file, in layer check, if there is none.
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

// try tries the faults whose files are wanted. All are looked at, so that one that is stale is seen soon.
func try(faults []fault, wanted *regexp.Regexp) error {
	var stale, missed []string
	for i := range faults {
		if err := faults[i].stale(); err != nil {
			stale = append(stale, err.Error())
		}
	}
	if stale != nil {
		return errors.New("these faults are stale:\n" + strings.Join(stale, "\n"))
	}
	dir, err := os.MkdirTemp("", "clrsnap-mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var wrong []string // what says nothing about the tests
	tried, good := 0, map[string]bool{}
	for i := range faults {
		f := &faults[i]
		if !wanted.MatchString(f.file) {
			continue
		}
		if _, known := good[f.tests]; !known {
			out, err := test(f.tests, "")
			if good[f.tests] = err == nil; err != nil {
				wrong = append(wrong, fmt.Sprintf("without a fault the tests fail: %s: %v\n%s", f.tests, err, out))
			}
		}
		if !good[f.tests] {
			continue
		}
		began := time.Now()
		found, err := f.try(dir)
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		tried++
		says := "found    "
		if !found {
			says = "NOT FOUND"
			missed = append(missed, f.String())
		}
		fmt.Printf("%s %3.0f s  %s\n", says, time.Since(began).Seconds(), f)
	}
	fmt.Printf("%d of %d faults were found\n", tried-len(missed), tried)
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

// stale is an error unless the text is in the file, once.
func (f *fault) stale() error {
	text, err := os.ReadFile(f.file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), f.old); n != 1 || f.old == "" {
		return fmt.Errorf("%s: the old text is there %d times", f, n)
	}
	return nil
}

// try reports whether the tests find the fault.
func (f *fault) try(dir string) (found bool, err error) {
	text, err := os.ReadFile(f.file)
	if err != nil {
		return false, err
	}
	in, err := filepath.Abs(f.file)
	if err != nil {
		return false, err
	}
	faulty, overlay := filepath.Join(dir, "faulty.go"), filepath.Join(dir, "overlay.json")
	replaced := strings.Replace(string(text), f.old, f.new, 1)
	if err := os.WriteFile(faulty, []byte(replaced), 0o600); err != nil {
		return false, err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{in: faulty}})
	if err != nil {
		return false, err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return false, err
	}
	out, err := test(f.tests, overlay)
	if strings.Contains(out, "[build failed]") {
		return false, fmt.Errorf("%s: it cannot be built:\n%s", f, out)
	}
	return err != nil, nil
}

// test runs go test. Commands that a test builds have the fault, too.
func test(tests, overlay string) (out string, err error) {
	layer, args, _ := strings.Cut(tests, " ")
	cmd := exec.Command("go", append([]string{"test", "-count", "1", "-timeout", "4m", "-vet", "off", "-tags", layer},
		strings.Fields(args)...)...)
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	b, err := cmd.CombinedOutput()
	return string(b), err
}
