package export

import (
	"fmt"
	"strconv"
	"strings"

	"clrsnap/profile"
)

// threads prints the threads with the largest weights.
func (p *printer) threads(r *profile.Recording, t *profile.Totals) {
	c := newAmounts(t, "%")
	p.numbersHead(c.numbers, "thread")
	rows := t.Threads[:min(len(t.Threads), topThreads)]
	for i := range rows {
		p.numbersRow(c.numbers, c.cells(&rows[i].Total)...)
		p.recordedThread(r, rows[i].Thread)
		p.end()
	}
	if n := len(t.Threads) - len(rows); n > 0 {
		p.more(n, [2]string{"thread", "threads"}, "--by-thread shows what each did, --threads chooses some")
	}
}

// recordedThread prints a thread's id, name and role.
func (p *printer) recordedThread(r *profile.Recording, thread int32) {
	t := &r.Threads[thread]
	if t.OSThreadID != 0 {
		p.text(strconv.Itoa(t.OSThreadID))
		if t.Name != "" {
			p.paint(yellow, " "+quoted(t.Name))
		}
	} else {
		p.text(Clean(threadLabel(t)))
	}
	if t.ManagedThreadID != 0 {
		p.paint(dim, " (managed "+strconv.Itoa(t.ManagedThreadID)+")")
	}
	if t.Role != "" && !(t.OSThreadID == 0 && t.Name == "") {
		p.text(" " + Clean(t.Role))
	}
	if i := int(t.Process); i > 0 && i < len(r.Processes) {
		p.paint(dim, " of process "+strconv.Itoa(r.Processes[i].PID))
	}
}

// eachThread prints the functions of the busiest threads, thread by thread.
func (p *printer) eachThread(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	rows := t.Threads[:min(len(t.Threads), topThreadsEach)]
	for i := range rows {
		thread := &r.Threads[rows[i].Thread]
		own := r.Select(profile.Selection{
			Native:  true, // native frames are already as the user wants them
			Modes:   []profile.Mode{t.Mode},
			Threads: func(x *profile.RecordedThread) bool { return x == thread },
		})
		p.end()
		p.paint(bold, "Thread ")
		p.recordedThread(r, rows[i].Thread)
		all := rows[i].Total.All().Weight
		weight := weightColumnOf(t.Mode.Unit(), all).text(all)
		p.paint(dim, fmt.Sprintf(" · %s, %.1f %% of all", weight, 100*t.Share(all)))
		p.end()
		p.tables(own, own.Totals(t.Mode), o)
	}
	if n := len(t.Threads) - len(rows); n > 0 {
		p.end()
		p.more(n, [2]string{"thread", "threads"}, "--threads chooses some")
	}
}

// Shares of flawed samples from which on there is a note.
const (
	notableLoss = 0.005 // of lost samples, or of weight in incomplete stacks
	notableLate = 0.05  // of late samples
)

// notesOf returns the notes of a recording: what is flawed in the samples, if it is more than
// negligible, and the notes that the recording itself has.
func notesOf(r *profile.Recording, modes []profile.Mode) []string {
	var out []string
	for _, m := range modes {
		t := r.Totals(m)
		if share := t.Share(t.Incomplete.Weight); share >= notableLoss {
			out = append(out, incompleteText(m, share))
		}
		if s, ok := r.Mode(m); ok {
			out = append(out, lossText(&s)...)
		}
	}
	return append(out, r.Notes...)
}

func (p *printer) notes(list []string) {
	if len(list) > 0 {
		p.end()
	}
	for _, s := range list {
		p.paint(yellow, "Note: ")
		p.text(Clean(s))
		p.end()
	}
}

func incompleteText(m profile.Mode, share float64) string {
	what := m.Title()
	if what[1] >= 'a' { // not an abbreviation, such as CPU or GC
		what = strings.ToLower(what[:1]) + what[1:]
	}
	if m.OfEvents() {
		return fmt.Sprintf("%.1f %% of the %s have an incomplete stack, or none.", 100*share, what)
	}
	return fmt.Sprintf("%.1f %% of the %s is in incomplete stacks: their frames near the base are missing.",
		100*share, what)
}

func lossText(s *profile.ModeStats) []string {
	var out []string
	if all := s.Samples + s.Lost; s.Lost > 0 && float64(s.Lost) >= notableLoss*float64(all) {
		out = append(out, fmt.Sprintf("%s of %s %s samples were lost (%.1f %%).",
			grouped(s.Lost), grouped(all), s.Mode, 100*float64(s.Lost)/float64(all)))
	}
	if s.Late > 0 && float64(s.Late) >= notableLate*float64(s.Samples) {
		out = append(out, fmt.Sprintf("%s of %s %s samples were late (%.1f %%): the CPUs were busy.",
			grouped(s.Late), grouped(s.Samples), s.Mode, 100*float64(s.Late)/float64(s.Samples)))
	}
	if s.Released > 0 {
		out = append(out, fmt.Sprintf("The watchdog ended %d %s.", s.Released, plural(s.Released, "stop", "stops")))
	}
	return out
}
