package shares

import (
	"bytes"
	"cmp"
	"debug/elf"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/livetest"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// TestAheadShares records a web service, a native AOT program without symbols, under load, while perf records the same
// program. Nearly all managed samples have a name. Each method has the same share of the CPU time as in perf's
// samples, which the compiler's symbols turn into functions.
func TestAheadShares(t *testing.T) {
	layer.Proof(t)
	if _, err := exec.LookPath("perf"); err != nil {
		t.Skip("SKIPPED, NOTHING WAS TESTED: there is no perf: run scripts/get-tools.sh bench")
	}
	file := testenv.AheadOfTimeNewest(t, "slim")
	alone := filepath.Join(t.TempDir(), "slim")
	if out, err := exec.Command("cp", file, alone).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pid, said := testenv.StartAheadOfTimeNewest(t, alone, "0", "3600")
	words := strings.Fields(said[0]) // "pid N runtime V listening URL"
	load(t, words[len(words)-1]+"/")
	code := symbolsOf(t, pid, file+".dbg")

	data := filepath.Join(t.TempDir(), "perf.data")
	perf := exec.Command("perf", "record", "-q", "-e", "cpu-clock:u", "-F", "997", "-p", strconv.Itoa(pid), "-o", data)
	perf.Stderr = os.Stderr
	if err := perf.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := clrsnap.Open(t.Context(), pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ours, named, nameless := samples{}, 0, 0
	enough := layer.Size(1000, 10_000)
	for end := time.Now().Add(10 * time.Minute); named+nameless < enough && time.Now().Before(end); {
		r := livetest.Recorded(t, p, record.Options{
			Modes: []profile.Mode{profile.CPU}, Rate: 997, Duration: 10 * time.Second,
		})
		n, without := code.recorded(r, ours)
		named, nameless = named+n, nameless+without
	}
	if err := perf.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = perf.Wait() // perf ends itself with the signal
	theirs := code.perf(t, data)
	all := named + nameless
	t.Logf("%d managed samples, %d of them named; perf has %.0f", all, named, theirs.all())
	if all < enough || float64(named) < .99*float64(all) {
		t.Errorf("%d of %d managed samples have names", named, all)
	}
	compare(t, theirs, ours)
}

// load asks a web service for a page again and again, until the end of the test.
func load(t *testing.T, url string) {
	for range 3 {
		go func() {
			var client http.Client
			for t.Context().Err() == nil {
				if answer, err := client.Get(url); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				}
			}
		}()
	}
}

// samples counts samples by the method at the top of the stack.
type samples map[string]float64

func (s samples) all() (n float64) {
	for _, k := range s {
		n += k
	}
	return n
}

// managedCode is the code that the compiler has made of .NET's methods.
type managedCode struct {
	low, high uint64 // in the file
	bias      uint64
	starts    []uint64
	names     map[uint64]string
}

// symbolsOf reads the functions of a program from the file with symbols. The name of a function is the name of the
// method: TestAheadNames of package engine compares these names with the symbols.
func symbolsOf(t *testing.T, pid int, file string) *managedCode {
	t.Helper()
	src, err := live.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(src)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	found, _ := e.OpenRuntime()
	f, symbols := testenv.Symbols(t, file)
	section := f.Section("__managedcode")
	if found == nil || e.Ahead == nil || section == nil {
		t.Fatalf("the runtime is %+v, the section of the code %v", found, section)
	}
	c := &managedCode{
		low: section.Addr, high: section.Addr + section.Size, names: map[uint64]string{},
		bias: uint64(found.Module.Start) - found.Module.Offset(found.Module.Start),
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Value < c.low || s.Value >= c.high {
			continue
		}
		name := s.Name
		if m, ok := e.Ahead.Method(arch.Addr(c.bias + s.Value)); ok {
			name = m.Exact
		}
		c.names[s.Value] = name
	}
	c.starts = slices.Sorted(maps.Keys(c.names))
	return c
}

// perf reads the samples of perf record.
func (c *managedCode) perf(t *testing.T, file string) samples {
	t.Helper()
	out, err := exec.Command("perf", "script", "-i", file, "-F", "ip").Output()
	if err != nil {
		t.Fatal(err)
	}
	s := samples{}
	for line := range bytes.Lines(out) {
		ip, err := strconv.ParseUint(strings.TrimSpace(string(line)), 16, 64)
		if at := ip - c.bias; err == nil && at >= c.low && at < c.high {
			i, found := slices.BinarySearch(c.starts, at)
			if !found {
				i--
			}
			s[c.names[c.starts[max(i, 0)]]]++
		}
	}
	return s
}

// recorded adds the managed samples of a recording, with and without a name. Code without a name is shown as the
// module with the offset.
func (c *managedCode) recorded(r *profile.Recording, s samples) (named, nameless int) {
	for i := range r.Samples {
		x := &r.Samples[i]
		for l := range r.Stack(x.Node) {
			f := &r.Functions[l.Function]
			offset, isOffset := strings.CutPrefix(f.Display, "slim!+0x")
			at, err := strconv.ParseUint(offset, 16, 64)
			switch {
			case f.Kind == snapshot.Managed:
				s[f.Method]++
				named++
			case isOffset && err == nil && at >= c.low && at < c.high:
				nameless++
			}
			break
		}
	}
	return named, nameless
}

// compare requires equal shares of all methods with a hundredth of the time or more.
func compare(t *testing.T, theirs, ours samples) {
	t.Helper()
	methods := slices.SortedFunc(maps.Keys(theirs), func(a, b string) int { return cmp.Compare(theirs[b], theirs[a]) })
	compared := 0
	for _, m := range methods {
		want, got := theirs[m]/theirs.all(), ours[m]/ours.all()
		if want < .01 {
			break
		}
		compared++
		most := .005 + 5*math.Sqrt(want*(1/theirs.all()+1/ours.all()))
		if math.Abs(want-got) > most {
			t.Errorf("%s has %.2f %% of the time, and perf says %.2f %%", m, 100*got, 100*want)
		}
		t.Logf("%6.2f %%, perf %6.2f %%  %s", 100*got, 100*want, m)
	}
	if compared < 10 {
		t.Errorf("only %d methods have 1 %% of the time", compared)
	}
}
