package export

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/profile"
)

// Order is what functions are sorted by.
type Order uint8

// The orders.
const (
	Flat Order = iota // the weight in the function itself
	Cum               // the weight in the function and in all that it calls
)

// TopOptions are the options of Top, Difference and their JSON forms. The zero value
// shows every function in every mode, without colours.
type TopOptions struct {
	Mode     *profile.Mode // the only mode to show; nil: every mode that was sampled
	Rows     int           // how many functions a table has; 0: all
	Sort     Order
	ByThread bool // a table for each of the busiest threads
	Color    bool // with ANSI escape sequences for colours
	Width    int  // of the terminal, in columns: longer lines lose modules and parameters; 0: unlimited
}

// How many threads are shown: in the table of threads, and with a table of their own.
const (
	topThreads     = 5
	topThreadsEach = 10
)

// Top writes tables for people: for each mode of the recording the functions with the
// largest weights, and the threads. For a table of a part of a recording, give it what
// profile.Recording.Select returns.
func Top(w io.Writer, r *profile.Recording, o TopOptions) error {
	p := newTable(w, o.Color, o.Width)
	p.recording(r)
	shown := o.modes(modesOf(r))
	for _, m := range shown {
		p.end()
		p.topMode(r, m, &o)
	}
	if len(shown) == 0 {
		p.end()
		p.text("No samples.")
		p.end()
	}
	p.notes(notesOf(r, shown))
	return p.w.Flush()
}

// modes returns the modes that are to be shown.
func (o *TopOptions) modes(there []profile.Mode) []profile.Mode {
	return slices.DeleteFunc(there, func(m profile.Mode) bool { return o.Mode != nil && *o.Mode != m })
}

func newTable(w io.Writer, color bool, width int) *printer {
	return &printer{w: bufio.NewWriterSize(w, 16<<10), o: TextOptions{Color: color, Width: width}}
}

// recording prints what was recorded, when, and for how long.
func (p *printer) recording(r *profile.Recording) {
	head := []cell{{"Recording", bold}}
	if len(r.Processes) > 0 {
		s := &r.Processes[0]
		if s.PID != 0 {
			head[0].text = "Process " + strconv.Itoa(s.PID)
		}
		if n := len(r.Processes) - 1; n > 0 {
			head[0].text += fmt.Sprintf(" and %d %s", n, plural(n, "child", "children"))
		}
		if s.Runtime != (profile.Runtime{}) {
			head = append(head, cell{RuntimeText(&s.Runtime), plain})
		}
	}
	if !r.Start.IsZero() {
		head = append(head, cell{r.Start.Format("2006-01-02 15:04:05 -07:00"), dim})
	}
	if r.Duration > 0 {
		head = append(head, cell{strconv.FormatFloat(r.Duration.Seconds(), 'f', 1, 64) + " s", plain})
		if c := r.Cost; c.TargetCPU > 0 {
			head = append(head, cell{usedText(c.TargetCPU, r.Duration, c.Processors), plain})
		}
	}
	p.parts(head...)
	if len(r.Processes) > 0 && r.Processes[0].Command != "" {
		p.paint(dim, Clean(r.Processes[0].Command))
		p.end()
	}
}

// usedText returns how many CPUs a program kept busy, of those that the machine has; 0:
// not known.
func usedText(cpu, duration time.Duration, cpus int) string {
	of := ""
	if cpus > 0 {
		of = fmt.Sprintf(" of %d", cpus)
	}
	return fmt.Sprintf("used %.2f%s CPUs", cpu.Seconds()/duration.Seconds(), of)
}

// topMode prints everything about one mode.
func (p *printer) topMode(r *profile.Recording, m profile.Mode, o *TopOptions) {
	t := r.Totals(m)
	p.modeSummary(r, t)
	if t.All.All().Samples == 0 {
		return
	}
	if o.ByThread {
		p.eachThread(r, t, o)
		return
	}
	p.end()
	p.tables(r, t, o)
	p.end()
	p.threads(r, t)
}

// tables prints the events, in an event mode, and the hottest functions.
func (p *printer) tables(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	if t.Mode.OfEvents() {
		p.events(r, t, o)
		p.end()
	}
	p.functions(r, t, o)
}

// eventTitles say what the events of a mode are grouped by, in the singular and the plural.
var eventTitles = [len(profile.Modes)][2]string{
	profile.Alloc: {"class", "classes"}, profile.Exception: {"exception", "exceptions"},
	profile.Contention:  {"owner", "owners"},
	profile.ThreadStart: {"started thread", "started threads"}, profile.GC: {"collection", "collections"},
}

// events prints the events with the largest weights.
func (p *printer) events(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	all := slices.DeleteFunc(slices.Clone(t.Functions), func(f profile.FunctionTotal) bool {
		return r.Functions[f.Function].Kind != profile.Event
	})
	rows, left := hottest(all, &TopOptions{Rows: o.Rows})
	c := newAmounts(t, "%")
	title := eventTitles[t.Mode]
	p.numbersHead(c.numbers, title[0])
	for i := range rows {
		p.numbersRow(c.numbers, c.cells(&rows[i].Self)...)
		p.function(&r.Functions[rows[i].Function], c.used)
	}
	if left > 0 {
		p.more(left, title, "--top 0 shows all")
	}
}

// modeSummary prints the line above the tables of a mode: the weight, the threads, whose
// code it is, and the number of samples.
func (p *printer) modeSummary(r *profile.Recording, t *profile.Totals) {
	all := t.All.All()
	out := []cell{{t.Mode.Title() + ":", bold}}
	if all.Samples == 0 {
		p.parts(cell{out[0].text + " no samples", bold})
		return
	}
	out[0].text += " " + weightColumnOf(t.Mode.Unit(), all.Weight).text(all.Weight)
	if countsEvents(t.Mode, all) {
		out = append(out, cell{eventsText(t.Mode, all.Events), plain})
	}
	n := len(t.Threads)
	out = append(out, cell{fmt.Sprintf("%s %s", grouped(n), plural(n, "thread", "threads")), plain})
	if t.Mode == profile.Wall {
		out = append(out, cell{fmt.Sprintf("running %.1f %%, waiting %.1f %%",
			100*t.Share(t.All[profile.Running].Weight), 100*t.Share(t.All[profile.Waiting].Weight)), plain})
	}
	for _, origin := range []profile.Origin{profile.OfUser, profile.OfFramework, profile.OfNative, profile.OfKernel} {
		if part := t.Origins[origin]; part != nil && part.All().Weight > 0 {
			text := fmt.Sprintf("%s %.1f %%", originNames[origin], 100*t.Share(part.All().Weight))
			out = append(out, cell{text, plain})
		}
	}
	samples := grouped(all.Samples) + plural(all.Samples, " sample", " samples")
	if s, ok := r.Mode(t.Mode); ok {
		samples += SamplingText(&s)
	}
	p.parts(append(out, cell{samples, dim})...)
}

var originNames = map[profile.Origin]string{
	profile.OfUser: "user code", profile.OfFramework: "framework",
	profile.OfNative: "native", profile.OfKernel: "kernel",
}

// functions prints the hottest functions.
func (p *printer) functions(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	all := t.Functions
	if t.Mode.OfEvents() {
		all = methods(r, all)
	}
	rows, left := hottest(all, o)
	c := newAmounts(t, "flat %", "cum %")
	p.numbersHead(c.numbers, "function")
	for i := range rows {
		p.numbersRow(c.numbers, append(c.cells(&rows[i].Self), c.cells(&rows[i].Total)...)...)
		p.function(&r.Functions[rows[i].Function], c.used)
	}
	if t.Empty.All().Samples > 0 {
		p.numbersRow(c.numbers, append(c.cells(&t.Empty), c.cells(&t.Empty)...)...)
		p.paint(dim, emptyStack)
		p.end()
	}
	if left > 0 {
		p.more(left, [2]string{"function", "functions"}, "--top 0 shows all")
	}
}

// methods returns the functions that are not events. The events that happened in a function
// itself count as its own weight.
func methods(r *profile.Recording, all []profile.FunctionTotal) []profile.FunctionTotal {
	var out []profile.FunctionTotal
	for _, f := range all {
		if r.Functions[f.Function].Kind != profile.Event {
			f.Self = f.Direct
			out = append(out, f)
		}
	}
	return out
}

// hottest returns the functions of the first rows, and how many others there are.
func hottest(all []profile.FunctionTotal, o *TopOptions) (rows []profile.FunctionTotal, left int) {
	rows = slices.Clone(all)
	slices.SortStableFunc(rows, func(a, b profile.FunctionTotal) int {
		self := cmp.Compare(b.Self.All().Weight, a.Self.All().Weight)
		total := cmp.Compare(b.Total.All().Weight, a.Total.All().Weight)
		if o.Sort == Cum {
			return cmp.Or(total, self)
		}
		return cmp.Or(self, total)
	})
	if o.Rows > 0 && len(rows) > o.Rows {
		left = len(rows) - o.Rows
	}
	return rows[:len(rows)-left], left
}

func (p *printer) more(n int, what [2]string, how string) {
	p.paint(dim, fmt.Sprintf("… and %s %s more (%s)", grouped(n), plural(n, what[0], what[1]), how))
	p.end()
}

// amounts are the columns of amounts: the share; the weight, in two columns if threads both
// ran and waited; and the number of events, unless that is the weight.
type amounts struct {
	*numbers
	totals        *profile.Totals
	split, events bool
	weight        weightColumn
}

// newAmounts returns the columns of one amount for each title.
func newAmounts(t *profile.Totals, titles ...string) *amounts {
	all := t.All.All()
	a := &amounts{totals: t, weight: weightColumnOf(t.Mode.Unit(), all.Weight), events: countsEvents(t.Mode, all)}
	a.split = t.Mode == profile.Wall && t.All[profile.Running].Samples > 0 && t.All[profile.Waiting].Samples > 0
	unit := a.weight.name
	var columns []string
	for _, title := range titles {
		word := title[:max(len(title)-len("%"), 0)]
		if a.split {
			columns = append(columns, title, "run "+unit, "wait "+unit)
		} else {
			columns = append(columns, title, cmp.Or(strings.TrimSpace(word+unit), eventNames[t.Mode][1]))
		}
		if a.events {
			columns = append(columns, eventNames[t.Mode][1])
		}
	}
	a.numbers = newNumbers(columns...)
	for i := range columns { // no number is longer than that of the whole
		whole := a.cells(&t.All)
		a.fit(i, whole[i%len(whole)].text)
	}
	return a
}

func (a *amounts) cells(p *profile.Part) []cell {
	all := p.All()
	out := []cell{percentage(a.totals.Share(all.Weight))}
	if a.split {
		out = append(out, a.weight.cell(p[profile.Running].Weight), a.weight.cell(p[profile.Waiting].Weight))
	} else {
		out = append(out, a.weight.cell(all.Weight))
	}
	if a.events {
		out = append(out, weightColumnOf(profile.Count, 0).cell(all.Events))
	}
	return out
}
