package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Order is the sort order of functions.
type Order uint8

// The orders.
const (
	Flat Order = iota // the weight in the function itself
	Cum               // the weight in the function and its callees
)

// TopOptions are the options of Top, Diff and their JSON forms. The zero value
// shows every function in every mode, without colours.
type TopOptions struct {
	Terminal
	Rows     int // how many functions a table has; 0: all
	Sort     Order
	ByThread bool // a table for each of the busiest threads
	Full     bool // no name is shortened: otherwise names are shortened to Width, or to 100 columns if Width is 0
	Idle     bool // with the samples of idle threads; TopJSON and DiffJSON always have the samples
	Lines    bool // with each function's source lines below the function; JSON always has the lines
	Plumbing bool // each framework frame: without Plumbing, runs are one function; JSON always has each function
}

// How many threads are shown: in the table of threads, and with a table of their own.
const (
	topThreads     = 5
	topThreadsEach = 10
)

// Top writes tables for people: for each mode of the recording the functions with the largest weights, and
// the threads. For a table of a part of a recording, pass the result of profile.Recording.Select.
func Top(w io.Writer, r *profile.Recording, o TopOptions) error {
	p := newTop(w, &o)
	p.recording(r)
	shown, work := r.RecordedModes(), o.worked(r)
	for _, m := range shown {
		p.end()
		p.topMode(work, r, m, &o)
	}
	if len(shown) == 0 {
		p.end()
		p.text("No samples.")
		p.end()
	}
	p.notes(notesOf(work, shown))
	return p.w.Flush()
}

func newTable(w io.Writer, o Terminal) *printer {
	return &printer{w: bufio.NewWriterSize(w, 16<<10), o: TextOptions{Terminal: o}}
}

// newTop returns the printer of a table with shortened names.
func newTop(w io.Writer, o *TopOptions) *printer {
	p := newTable(w, o.Terminal)
	if p.o.Full = o.Full; !o.Full {
		p.longest = longestName
	}
	return p
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
			head[0].text += fmt.Sprintf(" and %d %s", n, display.Plural(n, "child", "children"))
		}
		if s.Runtime != (snapshot.Runtime{}) {
			head = append(head, cell{RuntimeText(&s.Runtime), plain})
		}
	}
	if !r.Start.IsZero() {
		head = append(head, cell{r.Start.Format("2006-01-02 15:04:05 -07:00"), dim})
	}
	if r.Duration > 0 {
		head = append(head, cell{strconv.FormatFloat(r.Duration.Seconds(), 'f', 1, 64) + " s", plain})
		if c := r.Cost; c.TargetCPU > 0 {
			head = append(head, cell{display.CPUs(c.TargetCPU, r.Duration, c.Processors), plain})
		}
	}
	p.parts(head...)
	if len(r.Processes) > 0 && r.Processes[0].Command != "" {
		p.paint(dim, display.Clean(r.Processes[0].Command))
		p.end()
	}
}

// topMode prints everything about one mode. whole also has the samples that the tables leave out.
func (p *printer) topMode(r, whole *profile.Recording, m profile.Mode, o *TopOptions) {
	t := r.Totals(m)
	p.modeSummary(r, whole, t)
	rest := t.All.All().Samples > 0
	p.leftOut(whole, m, o, "", rest)
	if !rest {
		return
	}
	if o.ByThread {
		p.eachThread(r, t, o)
		return
	}
	p.end()
	p.own(r, t, o)
	p.tables(r, t, o)
	p.end()
	p.threads(r, t, o)
}

// tables prints the events, in an event mode, and the hottest functions.
func (p *printer) tables(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	if t.Mode == profile.Contention {
		p.locks(r, t, o)
	}
	if t.Mode.OfEvents() {
		p.events(r, t, o)
		p.end()
	}
	if t.Mode == profile.Exception {
		p.messages(&r.Messages, o)
	}
	p.functions(r, t, o)
}

// eventTitles name the groups of a mode's events, in the singular and the plural.
var eventTitles = [len(profile.Modes)][2]string{
	profile.Alloc: {"class", "classes"}, profile.Exception: {"exception", "exceptions"},
	profile.Contention:  {"owner", "owners"},
	profile.ThreadStart: {"started thread", "started threads"}, profile.GC: {"collection", "collections"},
	profile.Waits: {"primitive", "primitives"}, profile.Live: {"class", "classes"},
}

// events prints the events with the largest weights.
func (p *printer) events(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	all := slices.DeleteFunc(slices.Clone(t.Functions), func(f profile.FunctionTotal) bool {
		return r.Functions[f.Function].Kind != snapshot.Event || f.Self.All().Samples == 0 // a lock is no leaf
	})
	rows, left := hottest(all, &TopOptions{Rows: o.Rows})
	c := newAmounts(r, t, o.wide(eventRateWide), o.wide(eventRateWide), "%")
	title := eventTitles[t.Mode]
	p.numbersHead(c.numbers, title[0])
	for i := range rows {
		p.numbersRow(c.numbers, c.rows(estimate{&rows[i].Self, &rows[i].SelfVariance})...)
		p.function(&r.Functions[rows[i].Function], c.used)
	}
	if left > 0 {
		p.more(left, title, "--top 0 shows all")
	}
}

// messages prints the most frequent messages of exceptions.
func (p *printer) messages(m *profile.Messages, o *TopOptions) {
	rows := m.Counts
	if o.Rows > 0 && len(rows) > o.Rows {
		rows = rows[:o.Rows]
	}
	if len(rows) == 0 {
		return
	}
	n := newNumbers("exceptions")
	n.fit(0, display.Number(int(rows[0].Count)))
	p.numbersHead(n, "message")
	for i := range rows {
		m := &rows[i]
		p.numbersRow(n, cell{display.Number(int(m.Count)), plain})
		class := display.Clean(m.Type)
		text := display.OneLine(m.Text)
		switch {
		case text == "":
			text = "[no message of its own]"
		case m.Cut:
			text += "…"
		}
		if !o.Full {
			class = display.Clean(display.WithoutNamespaces(m.Type))
			most := longestName
			if o.Width > 0 {
				most = o.Width - n.used
			}
			text = display.Clip(text, max(most-display.Width(class+": "), shortestName))
		}
		p.paint(magenta, class)
		p.text(": " + text)
		p.end()
	}
	if left := len(m.Counts) - len(rows); left > 0 {
		p.more(left, [2]string{"message", "messages"}, "--top 0 shows all")
	}
	if m.Others > 0 {
		p.paint(dim, fmt.Sprintf("… and %s with other messages: there were too many different ones",
			display.Events(profile.Exception, m.Others)))
		p.end()
	}
	p.end()
}

// modeSummary prints the line above the tables of a mode: the weight, the threads, the code's origins, and
// the number of samples.
func (p *printer) modeSummary(r, whole *profile.Recording, t *profile.Totals) {
	all := t.All.All()
	out := []cell{{t.Mode.Title() + ":", bold}}
	if all.Samples == 0 {
		text := " no samples"
		if whole.Weight(t.Mode) > 0 {
			text = " none but that of idle threads"
		}
		p.parts(cell{out[0].text + text, bold})
		return
	}
	e := t.Error(all, t.Variance)
	out[0].text += " " + weightColumnOf(t.Mode.Unit(), all.Weight).textWithError(all.Weight, e.Weight)
	if rate := rateText(t.Mode, all.Weight, e.Weight, r.Duration); rate != "" {
		out = append(out, cell{rate, plain})
	}
	if display.CountsEvents(t.Mode, all) {
		text := display.EventsWithError(t.Mode, all.Events, e.Events) + eventRateText(t.Mode, all, e, r.Duration)
		out = append(out, cell{text, plain})
	}
	n := len(t.Threads)
	out = append(out, cell{fmt.Sprintf("%s %s", display.Number(n), display.Plural(n, "thread", "threads")), plain})
	if t.Mode == profile.Wall {
		out = append(out, cell{fmt.Sprintf("running %.1f %%, waiting %.1f %%",
			100*t.Share(t.All[profile.Running].Weight), 100*t.Share(t.All[profile.Waiting].Weight)), plain})
	}
	for _, origin := range []snapshot.Origin{
		snapshot.OfUser, snapshot.OfPackage, snapshot.OfFramework, snapshot.OfNative, snapshot.OfKernel,
	} {
		if part := t.Origins[origin]; part != nil && part.All().Weight > 0 {
			text := fmt.Sprintf("%s %.1f %%", originNames[origin], 100*t.Share(part.All().Weight))
			out = append(out, cell{text, plain})
		}
	}
	samples := samplesText(t.Mode, all.Samples)
	if s, ok := r.Mode(t.Mode); ok {
		samples += SamplingText(&s)
	}
	p.parts(append(out, cell{samples, dim})...)
}

var originNames = map[snapshot.Origin]string{
	snapshot.OfUser: "user code", snapshot.OfPackage: "packages", snapshot.OfFramework: "framework",
	snapshot.OfNative: "native", snapshot.OfKernel: "kernel",
}

// functions prints the hottest functions.
func (p *printer) functions(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	all := t.Functions
	if t.Mode.OfEvents() {
		all = methods(r, all)
	}
	rows, left := hottest(all, o)
	c := newAmounts(r, t, o.wide(rateWide), false, "flat %", "cum %")
	p.numbersHead(c.numbers, "function")
	lines := linesOf(r, t.Mode, o)
	for i := range rows {
		p.numbersRow(c.numbers, c.rows(estimatesOf(&rows[i])...)...)
		p.function(&r.Functions[rows[i].Function], c.used)
		p.sourceLines(r, c, lines[rows[i].Function], o)
	}
	if t.Empty.All().Samples > 0 {
		p.numbersRow(c.numbers, c.rows(estimate{part: &t.Empty}, estimate{part: &t.Empty})...)
		p.paint(dim, display.NoStack)
		p.end()
	}
	if left > 0 {
		p.more(left, [2]string{"function", "functions"}, "--top 0 shows all")
	}
}

// methods returns the functions that are not events. A function's own weight includes the events that
// happened in the function itself.
func methods(r *profile.Recording, all []profile.FunctionTotal) []profile.FunctionTotal {
	var out []profile.FunctionTotal
	for _, f := range all {
		if r.Functions[f.Function].Kind != snapshot.Event {
			f.Self, f.SelfVariance = f.Direct, f.DirectVariance
			out = append(out, f)
		}
	}
	return out
}

// hottest returns the functions of the first rows, and the number of other functions.
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
	p.paint(dim, fmt.Sprintf("… and %s %s more (%s)", display.Number(n), display.Plural(n, what[0], what[1]), how))
	p.end()
}

// amounts are the columns of amounts: the share; the weight, in two columns if threads both ran and waited;
// and the number of events, unless the weight is that number. The last amount can also have a rate, and the
// mean weight of one event.
type amounts struct {
	*numbers
	totals        *profile.Totals
	split, events bool
	weight        weightColumn
	rate          *rated        // nil: none
	mean          *weightColumn // nil: none
}

// newAmounts returns the columns of one amount for each title.
func newAmounts(r *profile.Recording, t *profile.Totals, rates, means bool, titles ...string) *amounts {
	all := t.All.All()
	a := &amounts{totals: t, weight: weightColumnOf(t.Mode.Unit(), all.Weight)}
	a.events = display.CountsEvents(t.Mode, all)
	a.split = t.Mode == profile.Wall && t.All[profile.Running].Samples > 0 && t.All[profile.Waiting].Samples > 0
	if rates && r.Duration > 0 {
		rate := ratedOf(t.Mode, all.Weight, r.Duration)
		a.rate = &rate
	}
	if means && a.events {
		mean := weightColumnOf(t.Mode.Unit(), all.Weight/all.Events)
		a.mean = &mean
	}
	unit := a.weight.Name
	var columns []string
	for i, title := range titles {
		word, last := title[:max(len(title)-len("%"), 0)], i == len(titles)-1
		if a.split {
			columns = append(columns, title, "run "+unit, "wait "+unit)
		} else {
			columns = append(columns, title, cmp.Or(strings.TrimSpace(word+unit), display.EventNames[t.Mode][1]))
		}
		if last && a.rate != nil {
			columns = append(columns, a.rate.title)
		}
		if a.events {
			columns = append(columns, display.EventNames[t.Mode][1])
		}
		if last && a.mean != nil {
			columns = append(columns, meanTitle(t.Mode, a.mean.Scale))
		}
	}
	a.numbers = newNumbers(columns...)
	whole := make([]estimate, len(titles))
	for i := range whole {
		whole[i] = estimate{&t.All, &t.Variance}
	}
	for i, c := range a.rows(whole...) { // the whole has the longest numbers
		a.fit(i, c.text)
	}
	return a
}

// estimate is an amount with its variance; without a variance see profile.Totals.Error.
type estimate struct {
	part     *profile.Part
	variance *profile.Variance
}

// estimatesOf returns the estimates of a function itself, and of its total.
func estimatesOf(f *profile.FunctionTotal) []estimate {
	return []estimate{{&f.Self, &f.SelfVariance}, {&f.Total, &f.TotalVariance}}
}

// rows returns the cells of a row, given one amount for each title.
func (a *amounts) rows(parts ...estimate) []cell {
	var out []cell
	for i, p := range parts {
		out = append(out, a.cells(p, i == len(parts)-1)...)
	}
	return out
}

// cells returns the columns of an amount, each number with its known digits.
func (a *amounts) cells(x estimate, last bool) []cell {
	p := x.part
	all := p.All()
	e := a.error(all, x.variance)
	out := []cell{estimatedPercentage(a.totals.Share(all.Weight), e.Share)}
	if a.split {
		out = append(out, a.stateCell(p[profile.Running]), a.stateCell(p[profile.Waiting]))
	} else {
		out = append(out, a.weight.estimatedCell(all.Weight, e.Weight))
	}
	if last && a.rate != nil {
		out = append(out, a.rate.cell(all.Weight, e.Weight))
	}
	if a.events {
		out = append(out, weightColumnOf(profile.Count, 0).estimatedCell(all.Events, e.Events))
	}
	if last && a.mean != nil {
		events := max(all.Events, 1)
		mean := all.Weight / events
		out = append(out, a.mean.estimatedCell(mean, float64(mean)*e.Events/float64(events)))
	}
	return out
}

// stateCell returns the weight of the part of an amount in one state.
func (a *amounts) stateCell(part profile.Amount) cell {
	return a.weight.estimatedCell(part.Weight, a.error(part, nil).Weight)
}

// fewSamples is a standard error, as a part of an amount of time. From this error on the amount is marked as
// an estimate: the amount has fewer than a hundred samples, more or less.
const fewSamples = 0.1

// error returns the standard error of an amount. A time with many samples counts as exact.
func (a *amounts) error(part profile.Amount, variance *profile.Variance) profile.Error {
	var e profile.Error
	if variance != nil {
		e = a.totals.Error(part, *variance)
	} else {
		e = a.totals.Error(part)
	}
	if !a.totals.Mode.OfEvents() && e.Weight <= fewSamples*float64(part.Weight) {
		return profile.Error{}
	}
	return e
}
