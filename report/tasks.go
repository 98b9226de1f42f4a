package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// TasksOptions are the options of TasksText and TasksJSON. The zero value shows everything, without colours.
type TasksOptions struct {
	Terminal
	Rows     int  // how many chains and timers to show; 0: all
	Full     bool // nothing is shortened or folded
	Plumbing bool // each framework frame on a line of its own

	// Link returns the URL that a terminal opens for a source line; "": no link. nil: the terminal knows no links.
	Link func(*snapshot.SourceLine) string
}

// TasksText writes what the async methods of a process wait for, for people.
func TasksText(w io.Writer, t *snapshot.Tasks, o TasksOptions) error {
	p := &printer{w: bufio.NewWriterSize(w, 64<<10), o: TextOptions{
		Terminal: o.Terminal, Full: o.Full, Plumbing: o.Plumbing || o.Full, Link: o.Link,
	}}
	p.process(&snapshot.Snapshot{Process: t.Process, CapturedAt: t.CapturedAt})
	for i := range firstOf(t.Chains, o.Rows) {
		p.chain(&t.Chains[i])
	}
	if n := len(t.Chains) - o.Rows; o.Rows > 0 && n > 0 {
		p.paint(dim,
			fmt.Sprintf("%s more %s: --limit 0 shows all", display.Number(n), display.Plural(n, "chain", "chains")))
		p.end()
		p.end()
	}
	p.faults(t.Faults, o.Rows)
	p.ended(t.Ended)
	p.pool(t.Pool)
	p.timers(t, o.Rows)
	p.tasksSummary(t)
	return p.w.Flush()
}

// chain prints a chain: its wait, and its methods.
func (p *printer) chain(c *snapshot.TaskChain) {
	p.paint(bold, display.Number(c.Count)+" ×")
	p.text(" " + chainText(c))
	p.end()
	p.chainStack(c.Frames)
	p.end()
}

// chainStack prints a stack, or methods that await each other. The first async method waits, and awaits nothing
// above.
func (p *printer) chainStack(frames []snapshot.Frame) {
	if len(frames) > 0 && frames[0].Kind == snapshot.Async {
		frames = slices.Clone(frames)
		frames[0].Kind = snapshot.Managed
	}
	p.stack(Group{{Frames: frames, Complete: true}})
}

// chainText says what a chain does.
func chainText(c *snapshot.TaskChain) string {
	switch {
	case c.State == snapshot.TaskRunning && len(c.Threads) > 0:
		text := "running on " + threadsText(c.Threads)
		if n := c.Count - len(c.Threads); n > 0 {
			text += fmt.Sprintf(", %d on threads that are not known", n)
		}
		return text
	case c.State == snapshot.TaskRunning:
		return "running"
	case c.WaitsFor == nil:
		return string(c.State)
	case c.State == snapshot.TaskWaiting && c.Circular:
		return "waiting for " + awaitedText(c.WaitsFor) + ", which waits for this method"
	case c.State == snapshot.TaskWaiting:
		return "waiting for " + awaitedText(c.WaitsFor)
	case c.WaitsFor.Kind == snapshot.AwaitsYield:
		return "ready to go on: queued on the thread pool"
	}
	return "ready to go on: " + awaitedText(c.WaitsFor) + taskEnds[c.State]
}

// threadsText names the first of several threads.
func threadsText(threads []snapshot.ThreadRef) string {
	const most = 4
	var names []string
	for i := range threads[:min(len(threads), most)] {
		names = append(names, threadText(&threads[i]))
	}
	if more := len(threads) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// taskEnds say how the awaited task has ended.
var taskEnds = map[snapshot.TaskState]string{
	snapshot.TaskReady: " is complete", snapshot.TaskFaulted: " has failed", snapshot.TaskCanceled: " was canceled",
}

// awaitedThings name the awaited objects, for people.
var awaitedThings = map[snapshot.AwaitedKind]string{
	snapshot.AwaitsTimer: "a timer", snapshot.AwaitsEndless: "a delay without end",
	snapshot.AwaitsSemaphore: "a SemaphoreSlim", snapshot.AwaitsSocket: "a socket", snapshot.AwaitsFile: "a file",
	snapshot.AwaitsChannel: "a channel", snapshot.AwaitsPipe: "a pipe",
	snapshot.AwaitsCompletion: "a TaskCompletionSource", snapshot.AwaitsMethod: "an async method",
	snapshot.AwaitsTask: "a task", snapshot.AwaitsSeveral: "Task.WhenAll", snapshot.AwaitsOne: "Task.WhenAny",
	snapshot.AwaitsTimeout: "Task.WaitAsync", snapshot.AwaitsSource: "an object",
	snapshot.AwaitsYield: "something that is not known",
}

func awaitedText(w *snapshot.Awaited) string {
	s := awaitedThings[w.Kind]
	switch w.Kind {
	case snapshot.AwaitsSocket, snapshot.AwaitsFile:
		if w.Target != "" {
			s = display.Clean(w.Target)
		}
	case snapshot.AwaitsMethod:
		if w.Target != "" {
			s = display.Clean(w.Target)
		}
	case snapshot.AwaitsSource, snapshot.AwaitsChannel, snapshot.AwaitsPipe, snapshot.AwaitsTask,
		snapshot.AwaitsCompletion:
		s += " (" + display.Clean(display.ShortType(w.Type)) + ")"
	}
	if w.Object != 0 {
		s += " " + hex(w.Object)
	}
	switch {
	case w.HasDue && w.Kind == snapshot.AwaitsSemaphore:
		s += ", gives up in " + spanText(max(w.Due, 0))
	case w.HasDue:
		s += ", " + dueText(w.Due)
	}
	return s
}

// inTime is how late a timer of .NET may be without delay: the timer's clock has steps of this length.
const inTime = 16 * time.Millisecond

func dueText(d time.Duration) string {
	switch {
	case d < -inTime:
		return "overdue for " + spanText(-d)
	case d < 0:
		return "due now"
	}
	return "due in " + spanText(d)
}

// faults prints the tasks that have ended with an exception.
func (p *printer) faults(list []snapshot.TaskFault, rows int) {
	if len(list) == 0 {
		return
	}
	p.paint(bold, "Failed tasks")
	p.end()
	for i := range firstOf(list, rows) {
		f := &list[i]
		p.text("    " + display.Number(f.Count) + " × " + display.Clean(faultText(f)))
		p.end()
		p.exception("      ", "        ", "", f.Exception)
	}
	p.end()
}

// faultText says what has failed, and whether anybody knows.
func faultText(f *snapshot.TaskFault) string {
	what := f.Method
	if what == "" {
		what = "a task"
	}
	switch {
	case f.Service != "":
		return "the service " + f.Service + " has ended: " + what
	case !f.Observed:
		return what + ": nobody has observed the exception"
	}
	return what
}

// pool prints the state of the thread pool.
// ended prints the services that have ended.
func (p *printer) ended(services []string) {
	if len(services) == 0 {
		return
	}
	p.paint(bold, "Background services that have ended")
	p.text("  " + display.Clean(strings.Join(services, ", ")))
	p.end()
	p.end()
}

func (p *printer) pool(pool *snapshot.Pool) {
	if pool == nil {
		return
	}
	p.paint(bold, "Thread pool")
	p.text(fmt.Sprintf("  %s, %d idle; minimum %d", counted(pool.Workers, "worker", "workers"), pool.Idle,
		pool.Minimum))
	if pool.HasWork {
		p.text("; " + display.Number(pool.Queued) + " queued")
	}
	p.end()
	for _, w := range firstOf(pool.Work, maxWork) {
		p.text("    " + display.Number(w.Count) + " × " + display.Clean(w.What))
		p.end()
	}
	p.end()
}

// maxWork is how many kinds of work items to show.
const maxWork = 10

func counted(n int, one, many string) string {
	return display.Number(n) + " " + display.Plural(n, one, many)
}

// timers prints the armed timers.
func (p *printer) timers(t *snapshot.Tasks, rows int) {
	if len(t.Timers) == 0 {
		return
	}
	p.paint(bold, "Timers")
	p.end()
	for _, x := range firstOf(t.Timers, rows) {
		p.text("    " + display.Number(x.Count) + " × " + display.Clean(x.Callback))
		if x.Period > 0 {
			p.text(", every " + spanText(x.Period))
		}
		if x.HasDue {
			p.text(", " + dueText(x.Due))
		}
		p.end()
	}
	p.end()
}

// tasksSummary prints the totals, and caveats.
func (p *printer) tasksSummary(t *snapshot.Tasks) {
	chains := 0
	for i := range t.Chains {
		chains += t.Chains[i].Count
	}
	s := counted(t.Methods, "async method", "async methods") + " in " + counted(chains, "chain", "chains")
	if t.ConsistentShare < 1 && t.ConsistentShare > 0 {
		s += "; " + strconv.FormatFloat(100*t.ConsistentShare, 'f', 0, 64) + " % of the heap consistent"
	}
	switch {
	case t.Unproven > 0 && t.Process.Core != nil:
		s += "; " + counted(t.Unproven, "chain", "chains") + " could not be read"
	case t.Unproven > 0:
		s += "; " + counted(t.Unproven, "chain", "chains") + " changed while read, and left out"
	}
	if t.Unread > 0 {
		s += "; " + counted(t.Unread, "object", "objects") + " could not be read"
	}
	if t.Partial {
		s += "; ended early"
	}
	p.paint(dim, s)
	p.end()
	looked := ""
	if t.Unproven+t.Unread > 0 && t.Process.Core == nil && !t.Partial {
		looked = "Objects moved or changed at each look, for " + spanText(t.Duration)
	}
	p.rest(t.Stop, looked)
	p.missing(t.Process.Core)
}
