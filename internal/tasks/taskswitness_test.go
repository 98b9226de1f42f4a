package tasks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestTasksWitness: each suspended async method that ClrMD finds on the heap of an idle program is in clrsnap's result,
// with the same awaiting methods in the same order. ClrMD follows the continuations of tasks only: its chains end at a
// method whose ValueTask has another source, at awaiters and schedulers of the program's own, and after ContinueWith.
// clrsnap's chains go on to the method with which the program began.
func TestTasksWitness(t *testing.T) {
	var installed []string
	for _, b := range testenv.InstalledRuntimes() {
		installed = append(installed, b.Runtime)
	}
	testenv.EachOf(t, installed, testTasksWitness)
}

func testTasksWitness(t *testing.T, runtime string) {
	a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--suspended", "5"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	tasks, err := p.Tasks(context.Background(), clrsnap.TasksOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	begun := len(a.Ask("truths"))
	ours := newOwnChains(t, tasks)
	if begun < 5*40 || ours.count != begun {
		t.Errorf("%d chains, and the program has begun %d", ours.count, begun)
	}
	// An iterator that rests at a yield neither runs nor waits. ClrMD does not tell the difference.
	said := slices.DeleteFunc(askTasks(t, a), func(c saidChain) bool {
		return len(c.methods) == 1 && strings.HasPrefix(c.methods[0], "Tasks.Levels+<Yields>")
	})
	pooled := pooledMethods(said)
	whole, lost := ours.match(t, said)
	for i, methods := range ours.awaiting {
		if !ours.taken[i] && !pooled[methods[0]] {
			t.Errorf("ClrMD has no method %s that is awaited by %q", methods[0], methods[1:])
		}
	}
	t.Logf("%d methods in %d chains: %d are awaited as ClrMD says, of %d it loses the outer ones, and %d it "+
		"does not know",
		len(ours.awaiting), ours.count, whole, lost, len(ours.awaiting)-whole-lost)
	if whole < 500 || lost < 200 || len(pooled) != 2 {
		t.Errorf("%d with all that await them, %d without some, pooled: %v", whole, lost, pooled)
	}
	livetest.EndsWell(t, a)
}

// ownChains are the chains that clrsnap finds.
type ownChains struct {
	count     int
	awaiting  [][]string // for each method in each chain: the method, and the methods that await it
	taken     []bool     // ClrMD has the method, too
	iterators map[string]bool
}

func newOwnChains(t *testing.T, tasks *snapshot.Tasks) *ownChains {
	t.Helper()
	o := &ownChains{iterators: map[string]bool{}}
	for i := range tasks.Chains {
		c := &tasks.Chains[i]
		o.count += c.Count
		var methods []string
		for k := range c.Frames {
			f := &c.Frames[k]
			machine, ok := strings.CutSuffix(f.Method, ".MoveNext")
			if !ok {
				continue // WhenAll and similar methods
			}
			_, arguments := cutArguments(f.Display)
			methods = append(methods, arity.ReplaceAllString(machine, "")+arguments)
			if strings.Contains(f.Display, "{async iterator}") {
				o.iterators[methods[len(methods)-1]] = true
			}
		}
		if n := len(methods); n == 0 || !strings.HasPrefix(methods[n-1], "Tasks.Suspended+<Root>") {
			t.Errorf("a chain of %q", methods)
		}
		for range c.Count {
			for k := range methods {
				o.awaiting = append(o.awaiting, methods[k:])
			}
		}
	}
	if o.taken = make([]bool, len(o.awaiting)); len(o.awaiting) != tasks.Methods {
		t.Errorf("%d methods in chains, and %d in all", len(o.awaiting), tasks.Methods)
	}
	return o
}

// saidChain is a suspended method in ClrMD's reading, with the methods that await the suspended method. whole: the last
// method has no continuation.
type saidChain struct {
	methods []string
	whole   bool
	pooled  string // the last method, if it belongs to a pool
}

// match finds each of ClrMD's methods in clrsnap's chains, no method twice. Whole chains are matched first, then longer
// chains before shorter chains, so that no chain takes the only place of another chain.
func (o *ownChains) match(t *testing.T, said []saidChain) (whole, lost int) {
	t.Helper()
	for i := range said { // an iterator's task has no continuation: its MoveNextAsync is awaited
		if s := &said[i]; o.iterators[s.methods[len(s.methods)-1]] {
			s.whole = false
		}
	}
	slices.SortStableFunc(said, func(a, b saidChain) int {
		if a.whole != b.whole {
			if a.whole {
				return -1
			}
			return 1
		}
		return len(b.methods) - len(a.methods)
	})
	for _, s := range said {
		i := o.find(s)
		switch {
		case i < 0:
			t.Errorf("no method %s that is awaited by %q (whole: %v)", s.methods[0], s.methods[1:], s.whole)
		case len(o.awaiting[i]) == len(s.methods):
			o.taken[i], whole = true, whole+1
		default:
			o.taken[i], lost = true, lost+1
		}
	}
	return whole, lost
}

func (o *ownChains) find(s saidChain) int {
	for i, methods := range o.awaiting {
		n := len(s.methods)
		if !o.taken[i] && len(methods) >= n && (!s.whole || len(methods) == n) && slices.Equal(methods[:n], s.methods) {
			return i
		}
	}
	return -1
}

func pooledMethods(said []saidChain) map[string]bool {
	pooled := map[string]bool{}
	for _, s := range said {
		if s.pooled != "" {
			pooled[s.pooled] = true
		}
	}
	return pooled
}

const (
	boxOfTask = "+AsyncStateMachineBox<"
	boxOfPool = "+StateMachineBox<"

	// Task.m_stateFlags: faulted, cancelled, ran to completion (Task.cs).
	completed = 0x0020_0000 | 0x0040_0000 | 0x0100_0000
)

// askTasks returns the suspended methods that ClrMD finds.
func askTasks(t *testing.T, a *testenv.App) (all []saidChain) {
	t.Helper()
	for line := range bytes.Lines(testenv.AskClrMD(t, "tasks", a)) {
		var row struct {
			Type  string
			Flags int
			Chain []string
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if row.Flags&completed != 0 {
			continue
		}
		var s saidChain
		for _, class := range append([]string{row.Type}, row.Chain...) {
			_, machine, ofTask := strings.Cut(class, boxOfTask)
			if s.whole = ofTask; !ofTask {
				var ofPool bool
				if _, machine, ofPool = strings.Cut(class, boxOfPool); !ofPool {
					continue
				}
				s.pooled = inRaw(machine)
			}
			s.methods = append(s.methods, inRaw(machine))
		}
		all = append(all, s)
	}
	return all
}

var arity = regexp.MustCompile("`[0-9]+")

// inRaw is the class of a method's state, without its type arguments; the type arguments follow, one by one. The class
// is the only type argument of the method's box. Of nested generic classes ClrMD gives the type arguments to the wrong
// class.
func inRaw(machine string) string {
	machine = strings.TrimSuffix(machine, ">")
	class, _ := cutArguments(machine)
	_, arguments := cutArguments(livetest.InCSharp(machine))
	return class + arguments
}

// cutArguments removes type arguments from a name, and returns all types in the type arguments, sorted. A bracket at
// the beginning of a name, or inside a name that begins with a bracket, is the compiler's.
func cutArguments(name string) (bare, arguments string) {
	var kept, cut strings.Builder
	for depth, i := 0, 0; i < len(name); i++ {
		switch c := name[i]; {
		case depth > 0 || c == '<' && i > 0 && isWord(name[i-1]):
			switch cut.WriteByte(c); c {
			case '<':
				depth++
			case '>':
				depth--
			}
		default:
			kept.WriteByte(c)
		}
	}
	types := strings.FieldsFunc(cut.String(), func(c rune) bool { return strings.ContainsRune("<>, ", c) })
	slices.Sort(types)
	if len(types) == 0 {
		return kept.String(), ""
	}
	return kept.String(), " of " + strings.Join(types, ", ")
}

func isWord(c byte) bool {
	return c == '_' || c == '`' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
