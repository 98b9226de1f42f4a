package export

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"clrsnap/profile"
)

// Order is what functions are sorted by.
type Order uint8

// The orders.
const (
	Flat Order = iota // the time in the function itself
	Cum               // the time in the function and what it calls
)

// TopOptions change what Top shows. The zero value is every function in every
// mode, without colours.
type TopOptions struct {
	Mode     *profile.Mode // nil: every mode that was sampled
	Rows     int           // how many functions; 0: all
	Sort     Order
	ByThread bool // a table for each of the busiest threads
	Color    bool
	Width    int // columns to fit lines into, by leaving out modules and parameters; 0: no bound
}

// How many threads are shown: of a list, and with functions of their own.
const (
	topThreads     = 5
	topThreadsEach = 10
)

// Top writes the functions that most time goes to, and the threads, for a person
// to read. Where only a part of a recording is of interest, it is to be given
// what Select returned.
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

// modes are those of the modes that are wanted.
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

// usedText is how many processors something kept busy.
func usedText(cpu, duration time.Duration, processors int) string {
	of := ""
	if processors > 0 {
		of = fmt.Sprintf(" of %d", processors)
	}
	return fmt.Sprintf("used %.2f%s processors", cpu.Seconds()/duration.Seconds(), of)
}

// topMode prints all about one mode.
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
	p.functions(r, t, o)
	p.end()
	p.threads(r, t)
}

// modeNames are what the time of a mode is called.
var modeNames = [...]string{profile.CPU: "CPU time", profile.Wall: "Wall-clock time"}

// modeSummary says how much time there is, of what, and how well it is known.
func (p *printer) modeSummary(r *profile.Recording, t *profile.Totals) {
	all := t.All.All()
	out := []cell{{modeNames[t.Mode] + ":", bold}}
	if all.Samples == 0 {
		p.parts(cell{out[0].text + " no samples", bold})
		return
	}
	out[0].text += " " + secondsText(all.Weight)(all.Weight).text + " s"
	n := len(t.Threads)
	out = append(out, cell{fmt.Sprintf("%s %s", grouped(n), plural(n, "thread", "threads")), plain})
	if t.Mode == profile.Wall {
		out = append(out, cell{fmt.Sprintf("running %.1f %%, waiting %.1f %%",
			100*t.Share(t.All[profile.Running].Weight), 100*t.Share(t.All[profile.Waiting].Weight)), plain})
	}
	for _, origin := range []profile.Origin{profile.OfUser, profile.OfFramework, profile.OfNative, profile.OfKernel} {
		if part := t.Origins[origin]; part != nil && part.All().Weight > 0 {
			out = append(out, cell{fmt.Sprintf("%s %.1f %%", originNames[origin], 100*t.Share(part.All().Weight)), plain})
		}
	}
	samples := grouped(all.Samples) + plural(all.Samples, " sample", " samples")
	if s, ok := r.Mode(t.Mode); ok && s.Got > 0 {
		samples += fmt.Sprintf(" at %.3g of %g Hz", s.Got, s.Rate)
	} else if s.Rate > 0 {
		samples += fmt.Sprintf(" at %g Hz", s.Rate)
	}
	p.parts(append(out, cell{samples, dim})...)
}

var originNames = map[profile.Origin]string{
	profile.OfUser: "user code", profile.OfFramework: "framework", profile.OfNative: "native", profile.OfKernel: "kernel",
}

// functions prints the hottest functions.
func (p *printer) functions(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	rows, left := hottest(t, o)
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
		p.more(left, "function", "--top 0 shows all")
	}
}

// hottest are the functions of the first rows, and how many there are besides.
func hottest(t *profile.Totals, o *TopOptions) (rows []profile.FunctionTotal, left int) {
	rows = slices.Clone(t.Functions)
	slices.SortStableFunc(rows, func(a, b profile.FunctionTotal) int {
		self, total := cmp.Compare(b.Self.All().Weight, a.Self.All().Weight), cmp.Compare(b.Total.All().Weight, a.Total.All().Weight)
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

func (p *printer) more(n int, what, how string) {
	p.paint(dim, fmt.Sprintf("… and %s %s%s more (%s)", grouped(n), what, plural(n, "", "s"), how))
	p.end()
}

// amounts are the columns of amounts: the share of the whole and seconds, apart
// for what ran and what waited where there is both.
type amounts struct {
	*numbers
	totals  *profile.Totals
	split   bool
	seconds func(time.Duration) cell
}

// newAmounts makes the columns of so many amounts, each under its title.
func newAmounts(t *profile.Totals, titles ...string) *amounts {
	a := &amounts{totals: t, seconds: secondsText(t.All.All().Weight)}
	a.split = t.All[profile.Running].Samples > 0 && t.All[profile.Waiting].Samples > 0
	var columns []string
	for _, title := range titles {
		word := title[:max(len(title)-len("%"), 0)]
		if a.split {
			columns = append(columns, title, "run s", "wait s")
		} else {
			columns = append(columns, title, word+"s")
		}
	}
	a.numbers = newNumbers(columns...)
	return a
}

func (a *amounts) cells(p *profile.Part) []cell {
	out := []cell{percentage(a.totals.Share(p.All().Weight))}
	if a.split {
		return append(out, a.seconds(p[profile.Running].Weight), a.seconds(p[profile.Waiting].Weight))
	}
	return append(out, a.seconds(p.All().Weight))
}
