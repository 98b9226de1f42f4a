package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Terminal is what a text is written for. The zero value is for a file: whole lines, without colours.
type Terminal struct {
	Color bool // with ANSI escape sequences for colours
	Width int  // in columns: longer lines lose modules and parameters, or their end; 0: unlimited, Why: 100
}

// cpuShare is the process's mean use of CPUs since its start: 1 is one CPU. The kernel counts both
// times in ticks of 10 ms.
func cpuShare(p *snapshot.Found) (share float64, known bool) {
	const least = time.Second // before this age the ticks are too coarse
	if p.Threads == 0 || p.Age < least {
		return 0, false
	}
	return p.CPU.Seconds() / p.Age.Seconds(), true
}

// column is a column of the list of processes.
type column struct {
	title  string
	number bool // right-aligned
	spare  int  // order in which columns are left out if there is no room; 0: never
	text   func(*snapshot.Found) string
}

var columns = []column{
	{"PID", true, 0, func(p *snapshot.Found) string { return strconv.Itoa(p.PID) }},
	{"USER", false, 2, func(p *snapshot.Found) string { return orDash(p.User) }},
	{"VERSION", false, 0, func(p *snapshot.Found) string { return orDash(p.Runtime.Version) }},
	{"SHAPE", false, 1, func(p *snapshot.Found) string { return orDash(p.Runtime.Shape) }},
	{"AGE", true, 0, func(p *snapshot.Found) string { return orUnknown(p, ageText(p.Age)) }},
	{"CPU", true, 0, cpuText},
	{"MEMORY", true, 0, func(p *snapshot.Found) string { return orUnknown(p, display.Weight(profile.Bytes, p.RSS)) }},
	{"THREADS", true, 3, func(p *snapshot.Found) string { return orUnknown(p, strconv.Itoa(p.Threads)) }},
}

const unknown = "-"

func orDash(s string) string { return cmp.Or(display.OneLine(s), unknown) }

func orUnknown(p *snapshot.Found, s string) string {
	if p.Threads == 0 {
		return unknown
	}
	return s
}

func cpuText(p *snapshot.Found) string {
	share, known := cpuShare(p)
	if !known {
		return unknown
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + " %"
}

// ageText returns the two largest units of a time: "3d 4h", "2h 5m", "12m 30s", "45s".
func ageText(d time.Duration) string {
	const day = 24 * time.Hour
	days, hours, minutes, seconds := d/day, d%day/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second
	switch {
	case days > 0:
		return fmt.Sprintf("%dd %dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh %dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm %ds", minutes, seconds)
	}
	return fmt.Sprintf("%ds", seconds)
}

// Processes writes a table of processes for people. The error of a process is on a line of its own
// below the process.
func Processes(w io.Writer, list []snapshot.Found, o Terminal) error {
	shown, widths := chosenColumns(list, o.Width)
	p := newTable(w, o)
	p.processLine(bold, shown, widths, func(c *column) string { return c.title }, "PROGRAM")
	for i := range list {
		of := &list[i]
		p.processLine(plain, shown, widths, func(c *column) string { return c.text(of) }, programText(of, o.Width))
		if of.Err != nil {
			p.paint(darkRed, fmt.Sprintf("%*s  ✗ %s", widths[0], "", display.OneLine(of.Err.Error())))
			p.end()
		}
	}
	return p.w.Flush()
}

// leastProgram is the number of terminal columns for the program, if possible.
const leastProgram = 24

// chosenColumns returns the columns that fit, and their widths.
func chosenColumns(list []snapshot.Found, width int) (shown []column, widths []int) {
	shown = slices.Clone(columns)
	used := 0
	for i := range shown {
		w := display.Width(shown[i].title)
		for k := range list {
			w = max(w, display.Width(shown[i].text(&list[k])))
		}
		widths = append(widths, w)
		used += w + columnGap
	}
	for spare := 1; width > 0 && width-used < leastProgram; spare++ {
		i := slices.IndexFunc(shown, func(c column) bool { return c.spare == spare })
		if i < 0 {
			break
		}
		used -= widths[i] + columnGap
		shown, widths = slices.Delete(shown, i, i+1), slices.Delete(widths, i, i+1)
	}
	return shown, widths
}

const columnGap = 2

// processLine prints a line of the table.
func (p *printer) processLine(st style, shown []column, widths []int, text func(*column) string, program string) {
	var b strings.Builder
	for i := range shown {
		s := text(&shown[i])
		pad := strings.Repeat(" ", widths[i]-display.Width(s))
		if shown[i].number {
			s = pad + s
		} else {
			s += pad
		}
		b.WriteString(s + strings.Repeat(" ", columnGap))
	}
	p.paint(st, display.Clip(b.String()+program, p.o.Width))
	p.end()
}

// programText returns a process's program, and the program's arguments.
func programText(p *snapshot.Found, width int) string {
	s := p.Command
	if p.Program != "" {
		s = p.Program + " " + p.Arguments
	}
	if most := 16 * width; width > 0 && len(s) > most {
		s = s[:most] // a process can claim to have megabytes of arguments
	}
	return orDash(s)
}

type jsonListed struct {
	PID     int          `json:"pid"`
	User    string       `json:"user,omitempty"`
	Command string       `json:"command,omitempty"`
	Runtime *jsonRuntime `json:"runtime,omitempty"`
	Error   string       `json:"error,omitempty"`

	Program string   `json:"program,omitempty"`
	Age     *float64 `json:"ageSeconds,omitempty"`
	CPU     *float64 `json:"cpuSeconds,omitempty"`
	RSS     *int64   `json:"rssBytes,omitempty"`
	Threads int      `json:"threads,omitempty"`
}

// ProcessesJSON writes processes as one JSON document and a newline. The schema is stable
// and described in docs/json.md.
func ProcessesJSON(w io.Writer, list []snapshot.Found) error {
	out := struct {
		Processes []jsonListed `json:"processes"`
	}{make([]jsonListed, len(list))}
	for i := range list {
		p := &list[i]
		j := jsonListed{PID: p.PID, User: p.User, Command: p.Command, Program: p.Program}
		if p.Runtime.Shape != "" {
			j.Runtime = jsonRuntimeOf(&p.Runtime)
		}
		if p.Threads > 0 {
			age, cpu := p.Age.Seconds(), p.CPU.Seconds()
			j.Age, j.CPU, j.RSS, j.Threads = &age, &cpu, &p.RSS, p.Threads
		}
		if p.Err != nil {
			j.Error = strings.Join(strings.Fields(p.Err.Error()), " ")
		}
		out.Processes[i] = j
	}
	j := jsonwriter.New(w)
	j.Value(&out)
	j.Text("\n")
	return j.Flush()
}
