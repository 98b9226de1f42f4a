package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// group prints one or more threads with equal stacks.
func (p *printer) group(g Group) {
	if len(g) == 1 {
		p.thread(g[0])
	} else {
		p.shared(g)
	}
	p.stack(g)
	p.end()
}

// thread prints the header of one thread.
func (p *printer) thread(t *snapshot.Thread) {
	p.paint(bold, "Thread "+strconv.Itoa(t.OSThreadID))
	if t.Name != "" {
		p.paint(yellow, " "+quoted(t.Name))
	}
	if t.ManagedThreadID != 0 {
		address := ""
		if p.o.Full {
			address = ", " + hex(t.ThreadID)
		}
		p.paint(dim, " (managed "+strconv.Itoa(t.ManagedThreadID)+address+")")
	}
	if t.Role != "" {
		p.text(" " + display.Clean(t.Role))
	}
	if !t.Crashed {
		p.property(stateStyle(t), stateText(t))
	} else {
		p.property(red, cmp.Or(t.State, "crashed"))
	}
	if p.o.Full {
		p.property(plain, t.Mode)
	}
	if t.Pause > 0 {
		p.property(dim, "paused "+PauseText(t.Pause))
	}
	p.end()
	for i := range t.Holds {
		p.paint(yellow, "  "+holdText(&t.Holds[i]))
		p.end()
	}
	p.exceptions(t)
}

func (p *printer) property(st style, s string) {
	if s != "" {
		p.paint(dim, " · ")
		p.paint(st, display.Clean(s))
	}
}

const stateRunning = "running"

// stateText returns the state of a thread: "waiting (futex)", "idle". The role says what an idle
// thread is for; without a role, the state does.
func stateText(t *snapshot.Thread) string {
	text := plainState(t)
	switch {
	case text == "":
		return t.Kernel
	case t.Kernel != "" && t.Kernel != text:
		text += ", " + t.Kernel
	}
	return text
}

func plainState(t *snapshot.Thread) string {
	idle := t.Idle()
	if idle == "" {
		return cmp.Or(waitText(t.Wait), t.State)
	}
	s := "idle"
	if t.Role == "" {
		s += " " + string(idle)
	}
	switch {
	case t.State == stateRunning || strings.HasPrefix(t.State, "yielding"):
		s += " (spinning)" // before the thread blocks
	case t.State != "" && !t.Waits() && t.State != t.Kernel:
		s += " (" + t.State + ")"
	}
	return s
}

func stateStyle(t *snapshot.Thread) style {
	switch {
	case t.Idle() != "":
		return dim
	case t.State == stateRunning:
		return green
	}
	return plain
}

// shared prints the header of threads with equal stacks: their number, roles, states, and ids.
func (p *printer) shared(g Group) {
	p.paint(bold, strconv.Itoa(len(g))+" threads")
	p.text(" with this stack")
	p.property(plain, tally(g, func(t *snapshot.Thread) string { return t.Role }))
	p.property(plain, tally(g, stateText))
	if p.o.Full {
		p.property(plain, tally(g, func(t *snapshot.Thread) string { return t.Mode }))
	}
	p.end()
	p.list("", g)
}

// mostValues bounds the values of a tally. Beyond the bound, values that differ only in the object
// are one.
const mostValues = 6

var objectAddress = regexp.MustCompile(` 0x[0-9a-f]+`)

// tally counts the threads with each value: "10 waiting (futex), 2 running". If all have one value,
// tally returns just the value.
func tally(g Group, of func(*snapshot.Thread) string) string {
	count := map[string]int{}
	for _, t := range g {
		count[of(t)]++
	}
	if len(count) > mostValues {
		alike := map[string]int{}
		for v, n := range count {
			alike[objectAddress.ReplaceAllString(v, "")] += n
		}
		count = alike
	}
	if len(count) == 1 {
		for v := range count {
			return v
		}
	}
	delete(count, "")
	values := make([]string, 0, len(count))
	for v := range count {
		values = append(values, v)
	}
	slices.SortFunc(values, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	others := 0
	for i, v := range values {
		if values[i] = strconv.Itoa(count[v]) + " " + v; i >= mostValues {
			others += count[v]
		}
	}
	if others > 0 {
		values = append(values[:mostValues], strconv.Itoa(others)+" otherwise")
	}
	return strings.Join(values, ", ")
}

// Bounds of a list of threads.
const (
	listMost  = 24
	listWidth = 100
)

// list prints the ids of threads, grouped by name, wrapped.
func (p *printer) list(title string, threads []*snapshot.Thread) {
	byName := map[string][]string{}
	var names []string
	left := len(threads)
	for _, t := range threads {
		if len(threads)-left == listMost && !p.o.Full && left > 1 {
			break
		}
		if byName[t.Name] == nil {
			names = append(names, t.Name)
		}
		byName[t.Name] = append(byName[t.Name], strconv.Itoa(t.OSThreadID))
		left--
	}
	var words []string
	for i, n := range names {
		if n != "" {
			words = append(words, quoted(n))
		}
		words = append(words, byName[n]...)
		if i < len(names)-1 || left > 0 {
			words[len(words)-1] += ","
		}
	}
	if left > 0 {
		words = append(words, fmt.Sprintf("and %d more (--full lists all)", left))
	}
	if title != "" {
		p.text(title)
		p.end()
	}
	p.wrap(words)
}

// wrap prints words, indented, on as many lines as necessary.
func (p *printer) wrap(words []string) {
	most := listWidth
	if p.o.Width > 0 {
		most = min(most, p.o.Width)
	}
	at := 0
	var b strings.Builder
	for _, w := range words {
		if n := display.Width(w); at > 0 && at+1+n > most {
			p.paint(dim, b.String())
			p.end()
			b.Reset()
			at = 0
		}
		sep := " "
		if at == 0 {
			sep = "  "
		}
		b.WriteString(sep + w)
		at += len(sep) + display.Width(w)
	}
	p.paint(dim, b.String())
	p.end()
}
