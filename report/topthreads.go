package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// threadGroup is a thread, or the threads of one role, which do the same for the program.
type threadGroup struct {
	thread int32 // index in Recording.Threads: the heaviest thread
	n      int
	total  profile.Part

	variance profile.Variance
}

// groupRoles groups the runtime's threads by role. Threads of the program have a row each.
func groupRoles(r *profile.Recording, threads []profile.ThreadTotal) []threadGroup {
	type key struct {
		process int32
		role    string
	}
	var out []threadGroup
	known := map[key]int{}
	for i := range threads {
		x := &r.Threads[threads[i].Thread]
		k := key{x.Process, x.Role}
		at, ok := known[k]
		if !ok {
			at = len(out)
			out = append(out, threadGroup{thread: threads[i].Thread})
			if x.Role != "" {
				known[k] = at
			}
		}
		g := &out[at]
		g.n++
		for s := range g.total {
			g.total[s].Add(threads[i].Total[s])
		}
		g.variance.Add(threads[i].Variance)
	}
	slices.SortStableFunc(out, func(a, b threadGroup) int {
		return cmp.Compare(b.total.All().Weight, a.total.All().Weight)
	})
	return out
}

// roleNames are the plurals of roles.
var roleNames = map[string]string{
	"ThreadPool worker": "ThreadPool workers", "ThreadPool waiter": "ThreadPool waiters",
	"Long-running task": "Long-running tasks",
}

// threads prints the threads with the largest weights. Threads with one role have a row together.
func (p *printer) threads(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	c := newAmounts(r, t, true, false, "%")
	p.numbersHead(c.numbers, "thread")
	all := groupRoles(r, t.Threads)
	rows, left := all[:min(len(all), topThreads)], 0
	for i := range all {
		if i >= len(rows) {
			left += all[i].n
			continue
		}
		p.numbersRow(c.numbers, c.rows(estimate{&all[i].total, &all[i].variance})...)
		if x := &r.Threads[all[i].thread]; all[i].n > 1 {
			p.text(display.Clean(cmp.Or(roleNames[x.Role], x.Role)))
			p.paint(dim, fmt.Sprintf(" (%s threads)", display.Number(all[i].n)))
			p.ofProcess(r, x)
		} else {
			p.recordedThread(r, all[i].thread)
		}
		p.end()
	}
	if left > 0 {
		p.more(left, [2]string{"thread", "threads"}, "--by-thread shows what each did, --threads chooses some")
	}
}

// ofProcess prints the child process of a thread.
func (p *printer) ofProcess(r *profile.Recording, t *profile.RecordedThread) {
	if i := int(t.Process); i > 0 && i < len(r.Processes) {
		p.paint(dim, " of process "+strconv.Itoa(r.Processes[i].PID))
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
		p.text(display.Clean(display.Thread(t)))
	}
	if t.ManagedThreadID != 0 {
		p.paint(dim, " (managed "+strconv.Itoa(t.ManagedThreadID)+")")
	}
	if t.Role != "" && !(t.OSThreadID == 0 && t.Name == "") {
		p.text(" " + display.Clean(t.Role))
	}
	p.ofProcess(r, t)
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

// Shares of flawed samples that deserve a note.
const (
	notableLoss = 0.005 // of lost samples, or of weight in incomplete stacks
	notableLate = 0.05  // of late samples
)

// notesOf returns the notes of a recording: the flaws of the samples, unless negligible, and the
// recording's own notes.
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
		p.text(display.Clean(s))
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
		out = append(out, fmt.Sprintf("%s of %s %s samples %s lost (%.1f %%).", display.Number(s.Lost),
			display.Number(all), s.Mode, display.Plural(s.Lost, "was", "were"), 100*float64(s.Lost)/float64(all)))
	}
	if s.Late > 0 && float64(s.Late) >= notableLate*float64(s.Samples) {
		out = append(out,
			fmt.Sprintf("%s of %s %s samples %s late (%.1f %%): the CPUs were busy.", display.Number(s.Late),
				display.Number(s.Samples), s.Mode, display.Plural(s.Late, "was", "were"),
				100*float64(s.Late)/float64(s.Samples)))
	}
	if s.Released > 0 {
		stops := display.Plural(s.Released, "stop", "stops")
		out = append(out, fmt.Sprintf("The watchdog ended %d %s.", s.Released, stops))
	}
	return out
}
