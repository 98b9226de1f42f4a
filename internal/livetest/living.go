package livetest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Marks is the evidence in the stacks of a recording of the program "living".
type Marks struct {
	Live, Gone int // frames of living methods, and of dropped methods
	Methods    map[string]bool
	Unnamed    map[string]int // frames of dropped methods without a known name, by the text in place of the name
	Incomplete int            // incomplete samples of threads that call dropped methods
	Elsewhere  int            // incomplete samples for other reasons than code that can be unloaded, of all threads
	Stubs      int            // leaves of threads that call living methods: jump stubs that nobody can prove

	faults map[string]int
	first  map[string]string // a stack of each kind of fault
}

var (
	marked = regexp.MustCompile(`(Live|Gone)\d{6}_(\d)$`)
	mark   = regexp.MustCompile(`^Living\.Marks\.(?:Mark(\d)|One)$`)
)

// CheckMarks looks at each stack. A method of the program calls the mark of its own number and nothing
// else, and is called by threads of its own kind. On threads that call living methods, each stack must
// be complete, and each frame must have a name. A leaf may lack a name, now and then: a call from code
// that can be unloaded may go through a jump stub beside that code. At first it is not known whether
// the stub was there already.
func CheckMarks(tb testing.TB, r *profile.Recording) *Marks {
	tb.Helper()
	m := &Marks{
		Methods: map[string]bool{}, Unnamed: map[string]int{}, faults: map[string]int{}, first: map[string]string{},
	}
	for i := range r.Samples {
		m.sample(r, &r.Samples[i])
	}
	if m.Stubs > len(r.Samples)/100+1 {
		m.faults["a leaf that is "+profile.UnknownCode] = m.Stubs
	}
	for what, n := range m.faults {
		tb.Errorf("%d times: %s, as in\n%s", n, what, m.first[what])
	}
	return m
}

func (m *Marks) sample(r *profile.Recording, x *profile.Sample) {
	living := strings.HasPrefix(r.Threads[x.Thread].Name, "living-")
	if !living && !strings.HasPrefix(r.Threads[x.Thread].Name, "churn-") {
		return
	}
	fault := func(what string) {
		what = x.Mode.String() + ": " + what
		if m.faults[what]++; m.faults[what] == 1 {
			m.first[what] = stackText(r, x)
		}
	}
	if x.Incomplete && elsewhere(r, x) {
		m.Elsewhere++
	} else if x.Incomplete && living {
		fault("an incomplete stack of a thread that calls methods that live")
	} else if x.Incomplete {
		m.Incomplete++
	}
	var before *profile.Function // the frame's callee
	for l := range r.Stack(x.Node) {
		f := &r.Functions[l.Function]
		unnamed := f.Kind == snapshot.Managed && f.Method == ""
		if stub := before == nil && f.Display == profile.UnknownCode; unnamed && living && stub {
			m.Stubs++
		} else if unnamed && living {
			fault("a method that lives is " + f.Display)
		} else if unnamed {
			m.Unnamed[f.Display]++
		}
		m.calls(f, before, unnamed || x.Mode.OfEvents(), living, fault)
		before = f
	}
}

// elsewhere reports whether an incomplete stack ends neither in code that can be unloaded nor just
// before such code. Then the stack ends on a signal's stack (docs/limits.md), or where the copy of a
// deep stack ends.
func elsewhere(r *profile.Recording, x *profile.Sample) bool {
	var last *profile.Function
	for l := range r.Stack(x.Node) {
		if last = &r.Functions[l.Function]; last.Kind == snapshot.Managed && last.Method == "" {
			return false
		}
	}
	return last != nil && last.Kind != snapshot.Kernel && last.Kind != snapshot.Event &&
		!mark.MatchString(last.Method) && !marked.MatchString(last.Method)
}

// calls checks a frame and its callee. missing: the method's own frame may not be known, or may be
// absent: the CLR's own walks, of events, leave out methods without metadata.
func (m *Marks) calls(f, callee *profile.Function, missing, living bool, fault func(string)) {
	got := marked.FindStringSubmatch(f.Method)
	if callee != nil {
		k := mark.FindStringSubmatch(callee.Method)
		if k != nil && k[1] != "" && !missing && (got == nil || got[2] != k[1]) {
			fault("a method with another number calls a mark")
		}
	}
	if got == nil {
		return
	}
	if callee != nil && callee.Kind == snapshot.Managed && callee.Method != "" && !mark.MatchString(callee.Method) {
		fault("a method calls something else than a mark")
	}
	if m.Methods[f.Method] = true; got[1] == "Live" {
		m.Live++
	} else {
		m.Gone++
	}
	if living != (got[1] == "Live") {
		fault("a method is called by a thread that calls others")
	}
}

func stackText(r *profile.Recording, x *profile.Sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\t%v, thread %q, incomplete: %v\n", x.At, r.Threads[x.Thread].Name, x.Incomplete)
	for l := range r.Stack(x.Node) {
		f := &r.Functions[l.Function]
		fmt.Fprintf(&b, "\t%-7s %s!%s+%#x [%s]\n", f.Kind, f.Module, f.Display, l.Offset, l.Tier)
	}
	return b.String()
}
