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

// RequestsOptions are the options of RequestsText and RequestsJSON. The zero value shows everything but queries,
// without colours.
type RequestsOptions struct {
	Terminal
	Rows     int  // how many groups of requests, and of calls, to show; 0: all
	Query    bool // with the text after "?" in paths, possibly secret
	Full     bool // nothing is shortened or folded
	Plumbing bool // each framework frame on a line of its own

	// Link returns the URL that a terminal opens for a source line; "": no link. nil: the terminal knows no
	// links.
	Link func(*snapshot.SourceLine) string
}

// requestsPrinter prints requests and calls.
type requestsPrinter struct {
	*printer
	r *snapshot.Requests
	o *RequestsOptions
}

// RequestsText writes the requests that a process serves, and its pending calls, for people.
func RequestsText(w io.Writer, r *snapshot.Requests, o RequestsOptions) error {
	p := &requestsPrinter{&printer{w: bufio.NewWriterSize(w, 64<<10), o: TextOptions{
		Terminal: o.Terminal, Full: o.Full, Plumbing: o.Plumbing || o.Full, Link: o.Link,
	}}, r, &o}
	p.process(&snapshot.Snapshot{Process: r.Process, CapturedAt: r.CapturedAt})
	for i := range firstOf(r.Requests, o.Rows) {
		p.requests(&r.Requests[i])
	}
	p.more(len(r.Requests), "group of requests", "groups of requests")
	if len(r.Calls) > 0 {
		p.paint(bold, "Calls going out")
		p.end()
		p.end()
	}
	for i := range firstOf(r.Calls, o.Rows) {
		p.calls(&r.Calls[i])
	}
	p.more(len(r.Calls), "group of calls", "groups of calls")
	p.pools()
	p.summary()
	return p.w.Flush()
}

// more says how many groups are left out.
func (p *requestsPrinter) more(all int, one, many string) {
	if n := all - p.o.Rows; p.o.Rows > 0 && n > 0 {
		p.paint(dim, counted(n, one, many)+" more: --limit 0 shows all")
		p.end()
		p.end()
	}
}

// maxShown is how many requests or calls of a group are shown individually.
const maxShown = 3

// requests prints a group of requests.
func (p *requestsPrinter) requests(g *snapshot.RequestGroup) {
	p.paint(bold, display.Number(len(g.Requests))+" × "+display.Clean(strings.TrimSpace(g.Method+" "+g.Path)))
	var since []time.Time
	for i := range g.Requests {
		since = append(since, g.Requests[i].Since)
	}
	p.text(p.ages(since) + " · " + doingText(&g.Doing) + goneText(g.Requests))
	p.end()
	for i := range p.shown(g.Requests) {
		p.request(&g.Requests[i])
	}
	p.others(len(g.Requests))
	d := g.Doing
	if d.Call != nil && !p.o.Full {
		d.Frames = ownCall(d.Frames)
	}
	p.doing(&d)
}

// goneText says how many requests of a group are for clients that have gone.
func goneText(list []snapshot.Request) string {
	gone := 0
	for i := range list {
		if list[i].Aborted {
			gone++
		}
	}
	if gone == 0 || len(list) == 1 { // the line of the request says so
		return ""
	}
	return " · " + display.Number(gone) + " for clients that have gone"
}

func (p *requestsPrinter) shown(list []snapshot.Request) []snapshot.Request {
	if p.o.Full {
		return list
	}
	return firstOf(list, maxShown)
}

// others says how many members of a group are left out.
func (p *requestsPrinter) others(all int) {
	if n := all - maxShown; n > 0 && !p.o.Full {
		p.paint(dim, "  and "+display.Number(n)+" more")
		p.end()
	}
}

// request prints one request.
func (p *requestsPrinter) request(r *snapshot.Request) {
	words := []string{display.Clean(r.Path) + p.query(r.Query), r.Protocol}
	if r.Remote != "" {
		words = append(words, "from "+display.Clean(r.Remote))
	}
	words = append(words, p.age(r.Since))
	if r.Answering {
		words = append(words, "is being answered")
	}
	if r.Aborted {
		words = append(words, "the client has gone")
	}
	if r.Thread != nil {
		words = append(words, "on "+display.Clean(threadText(r.Thread)))
	}
	words = append(words, display.Clean(r.ID))
	p.paint(dim, "  "+strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), "  "))
	p.end()
}

func (p *requestsPrinter) query(q string) string {
	if !p.o.Query {
		return ""
	}
	return display.Clean(q)
}

// age is how long something has been under way; "": not known.
func (p *requestsPrinter) age(since time.Time) string {
	d, ok := snapshot.Age(since, p.r.CapturedAt)
	if !ok {
		return ""
	}
	return "for " + spanText(d)
}

// ages are the longest and the shortest of several times, the longest first.
func (p *requestsPrinter) ages(since []time.Time) string {
	var known []time.Duration
	for _, t := range since {
		if d, ok := snapshot.Age(t, p.r.CapturedAt); ok {
			known = append(known, d)
		}
	}
	if len(known) == 0 {
		return ""
	}
	most, least := spanText(slices.Max(known)), spanText(slices.Min(known))
	if most == least {
		return " for " + most
	}
	return " for " + least + " to " + most
}

// doingText describes the work of requests or calls.
func doingText(d *snapshot.Doing) string {
	if d.State == "" {
		return "what they do is not known"
	}
	text := chainText(&snapshot.TaskChain{State: d.State, WaitsFor: d.WaitsFor})
	if d.Wait != nil {
		text = waitingText(d.Wait)
	}
	if c := d.Call; c != nil {
		text = phases[c.Phase] + " (HttpClient, " + display.Clean(c.Authority) + ")"
	}
	if d.Branches > 0 {
		text += fmt.Sprintf("; %s besides", counted(d.Branches, "chain", "chains"))
	}
	return text
}

// doing prints the stack of the work of requests or calls.
func (p *requestsPrinter) doing(d *snapshot.Doing) {
	if len(d.Frames) > 0 {
		p.chainStack(d.Frames)
	}
	p.end()
}

// phases describe the progress of a call.
var phases = map[snapshot.CallPhase]string{
	snapshot.CallConnection: "waiting for a connection", snapshot.CallAnswer: "waiting for the answer",
	snapshot.CallBody: "the answer has begun, and is not read to its end", snapshot.CallOpen: "has a connection",
	snapshot.CallWebSocket: "an open WebSocket",
	snapshot.CallUpgraded:  "the connection is used for something else",
}

// calls prints a group of calls.
func (p *requestsPrinter) calls(g *snapshot.CallGroup) {
	p.paint(bold, display.Number(len(g.Calls))+" × "+
		display.Clean(strings.TrimSpace(g.Method+" "+g.Authority+g.Path)))
	var since []time.Time
	for i := range g.Calls {
		since = append(since, g.Calls[i].Since)
	}
	p.text(p.ages(since) + " · " + phases[g.Phase])
	p.end()
	list := g.Calls
	if !p.o.Full {
		list = firstOf(list, maxShown)
	}
	for i := range list {
		p.call(&g.Calls[i])
	}
	p.others(len(g.Calls))
	d := g.Doing
	if !p.o.Full {
		d.Frames = ownCall(d.Frames)
	}
	p.doing(&d)
}

// ownCall leaves out the frames of HttpClient.
func ownCall(frames []snapshot.Frame) []snapshot.Frame {
	i := slices.IndexFunc(frames, func(f snapshot.Frame) bool { return f.Module != "System.Net.Http" })
	return frames[max(i, 0):]
}

// callWords are the known facts of a call.
func (p *requestsPrinter) callWords(c *snapshot.ClientCall) []string {
	words := []string{display.Clean(c.Path) + p.query(c.Query), c.Protocol}
	if c.Remote != "" {
		words = append(words, "to "+display.Clean(c.Remote))
	}
	words = append(words, p.age(c.Since))
	if c.Request != "" {
		words = append(words, "for the request "+display.Clean(c.Request))
	}
	return slices.DeleteFunc(words, func(s string) bool { return s == "" })
}

// call prints one call.
func (p *requestsPrinter) call(c *snapshot.ClientCall) {
	p.paint(dim, "  "+strings.Join(p.callWords(c), "  "))
	p.end()
}

// pools prints the connection pools in use.
func (p *requestsPrinter) pools() {
	if len(p.r.Pools) == 0 {
		return
	}
	p.paint(bold, "Connections to other servers")
	p.end()
	var lines []string
	equal := map[string]int{}
	for i := range p.r.Pools {
		c := &p.r.Pools[i]
		line := display.Clean(c.Authority) + poolText(c)
		if equal[line]++; equal[line] == 1 {
			lines = append(lines, line)
		}
	}
	for _, line := range lines {
		if n := equal[line]; n > 1 {
			line = display.Number(n) + " × " + line
		}
		p.text("    " + line)
		p.end()
	}
	p.end()
}

func poolText(c *snapshot.CallPool) string {
	s := ""
	if c.Secure {
		s += " (TLS)"
	}
	if c.Proxied {
		s += " (by a proxy)"
	}
	s += ": " + counted(c.Active, "call", "calls") + " on "
	all := counted(c.HTTP1.All+c.HTTP2.All, "connection", "connections")
	if c.HTTP1.Maximum > 0 {
		all = display.Number(c.HTTP1.All) + " of at most " + counted(c.HTTP1.Maximum, "connection", "connections")
		if c.HTTP2.All > 0 {
			all += " and " + display.Number(c.HTTP2.All) + " of HTTP/2"
		}
	}
	s += all
	if n := c.HTTP1.Pending + c.HTTP2.Pending; n > 0 {
		s += ", " + display.Number(n) + " being made"
	}
	if c.Queued > 0 {
		s += "; " + counted(c.Queued, "call waits", "calls wait") + " for one"
	}
	return s
}

// summary prints the totals, and caveats.
func (p *requestsPrinter) summary() {
	requests, calls := 0, 0
	for i := range p.r.Requests {
		requests += len(p.r.Requests[i].Requests)
	}
	for i := range p.r.Calls {
		calls += len(p.r.Calls[i].Calls)
	}
	s := counted(requests, "request", "requests") + " in flight, "
	if p.r.CallsUnread {
		s += "calls of HttpClient not known: clrsnap cannot read the calls of a native AOT program"
	} else {
		s += counted(calls, "call", "calls") + " going out"
	}
	if c := p.r.ConsistentShare; c < 1 && c > 0 {
		s += "; " + strconv.FormatFloat(100*c, 'f', 0, 64) + " % of the heap consistent"
	}
	if p.r.Partial {
		s += "; ended early"
	}
	p.paint(dim, s)
	p.end()
	looked := ""
	if n := p.r.Unproven; n > 0 {
		looked = counted(n, "object", "objects") + " changed or moved at each look, for " + spanText(p.r.Duration) +
			": requests and calls may be missing"
	}
	if looked != "" && (p.r.Stop != nil || p.r.Partial || p.r.Process.Core != nil) {
		p.paint(dim, looked)
		p.end()
		looked = ""
	}
	p.rest(p.r.Stop, looked)
}
