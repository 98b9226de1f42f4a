package report

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// Measures of a picture in pixels.
const (
	boxWide    = 330
	boxHigh    = 58
	gapWide    = 50
	gapHigh    = 16
	edgeLeft   = 100 // room for the arrows of circles
	edgeTop    = 48
	letterWide = 6.6 // of a letter of 11 pixels, about
)

// WaitGraphSVG writes a WaitGraph as a picture. The picture has no script, and needs no other file.
func WaitGraphSVG(w io.Writer, s *snapshot.Snapshot, g *snapshot.WaitGraph) error {
	b := bufio.NewWriter(w)
	newPicture(s, g).draw(b)
	return b.Flush()
}

func (p *picture) draw(w *bufio.Writer) {
	width := max(edgeLeft+p.cols*(boxWide+gapWide)+20, 720)
	height := edgeTop + max(p.rows, 1)*(boxHigh+gapHigh) + 30
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d"`+
		` font-family="system-ui, Verdana, 'DejaVu Sans', sans-serif" font-size="11">
<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">`+
		`<path d="M0 0L8 4L0 8z" fill="#5b6472"/></marker><marker id="r" viewBox="0 0 8 8" refX="8" refY="4"`+
		` markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#c62828"/></marker>`+
		`<marker id="l" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">`+
		`<path d="M0 0L8 4L0 8z" fill="`+likelyColor+`"/></marker></defs>
<rect width="100%%" height="100%%" fill="#fff"/>
`, width, height, width, height)
	label(w, 14, 22, `font-size="14" font-weight="600"`, graphTitle(p.s), float64(width-28)/8.4)
	for _, a := range p.more {
		p.curve(w, a)
	}
	for i := range p.boxes {
		p.box(w, &p.boxes[i])
	}
	p.foot(w, height)
	w.WriteString("</svg>\n")
}

func (p *picture) foot(w *bufio.Writer, height int) {
	text := graphSummary(p.s, p.g)
	if len(p.boxes) == 0 {
		text = "No thread waits for another · " + text
	}
	if slices.ContainsFunc(p.more, func(a arrow) bool { return a.likely }) {
		text += " · dashed: likely"
	}
	if p.left > 0 {
		text += fmt.Sprintf(" · %d threads are not drawn", p.left)
	}
	label(w, 14, height-12, `fill="#5b6472"`, text, 200)
}

func (b *box) x() int { return edgeLeft + b.col*(boxWide+gapWide) }
func (b *box) y() int { return edgeTop + b.row*(boxHigh+gapHigh) }

// dashed is the style of boxes that are not threads, and of likely edges.
const dashed = ` stroke-dasharray="5 3"`

// box draws a thread, a suspended method or a lock, and the line to the awaited box.
func (p *picture) box(w *bufio.Writer, b *box) {
	if b.parent >= 0 {
		to := &p.boxes[b.parent]
		x, y := to.x()+boxWide, to.y()+boxHigh/2
		fmt.Fprintf(w, `<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="#5b6472" marker-end="url(#a)"/>`+"\n",
			b.x(), b.y()+boxHigh/2, b.x()-gapWide/2, b.y()+boxHigh/2, x+gapWide/2, y, x, y)
	}
	title, lines := p.lines(b)
	fill, stroke, round, dashes := "#f3f6fa", "#8a94a3", 4, ""
	switch {
	case b.lock >= 0:
		fill, stroke, round = "#fff8e1", "#b38600", 20
	case b.member:
		fill, stroke = "#fdecea", "#c62828"
	case b.knot > 0:
		fill, stroke = "#fff3e6", likelyColor
	}
	if b.who.Await >= 0 {
		round, dashes = 14, dashed
	}
	fmt.Fprintf(w, `<g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="%d" fill="%s" stroke="%s"%s/>`,
		escape(title), b.x(), b.y(), boxWide, boxHigh, round, fill, stroke, dashes)
	for i, text := range lines {
		attributes := `fill="#3c4450"`
		if i == 0 {
			attributes = `font-weight="600"`
		}
		label(w, b.x()+8, b.y()+16+i*17, attributes, text, (boxWide-16)/letterWide)
	}
	w.WriteString("</g>\n")
}

// lines returns the text in a box, and more text for the tooltip.
func (p *picture) lines(b *box) (title string, lines []string) {
	switch {
	case b.others > 0:
		lines = []string{fmt.Sprintf("and %d more threads", b.others)}
	case b.lock >= 0:
		l := &p.g.Locks[b.lock]
		lines = []string{stateName(l), apartText(l), fmt.Sprintf("%d threads cannot go on", l.Blocked)}
		if len(l.Holders) > 0 {
			title = strings.Join(lines, "\n") + "\n" + holdersText(p.s, l.Kind, l.Holders)
		}
	case b.who.Await >= 0:
		a := &p.s.Awaits[b.who.Await]
		title, lines = awaitTitle(a), awaitLines(a)
	default:
		t := &p.s.Threads[b.who.Thread]
		lines = []string{threadName(p.s, b.who.Thread)}
		if text := doesText(t); text != "" {
			lines = append(lines, text)
		}
		for _, f := range ownFrames(t, 1) {
			lines = append(lines, frameText(f))
		}
		title = strings.Join(lines, "\n")
		for i := range t.Holds {
			title += "\n" + holdText(&t.Holds[i])
		}
		for _, f := range ownFrames(t, 20) {
			title += "\n  " + frameText(f)
		}
	}
	if title == "" {
		title = strings.Join(lines, "\n")
	}
	return title, lines
}

// doesText says what a thread does; if an arrow says for whom the thread waits, doesText does not.
func doesText(t *snapshot.Thread) string {
	switch w := t.Wait; {
	case w == nil || w.Owner == nil && len(w.Readers)+len(w.Behind) == 0:
		return stateText(t)
	case w.Kind == snapshot.ThreadJoin:
		return "waits" + doubt(w.Certain) + " for its end"
	case w.Timeout > 0:
		return "waits" + doubt(w.Certain) + " for " + edgeText(w) + ", at most " + spanText(w.Timeout)
	default:
		return "waits" + doubt(w.Certain) + " for " + edgeText(w)
	}
}

// curve draws an edge on the left of two boxes, if neither box is to the right of the other. Upward edges are further
// out, so that two boxes that wait for one another have two lines.
func (p *picture) curve(w *bufio.Writer, a arrow) {
	from, to := &p.boxes[a.from], &p.boxes[a.to]
	y1, y2 := from.y()+boxHigh*2/3, to.y()+boxHigh/3
	out := 30 + abs(from.row-to.row)*12
	if from.row > to.row {
		out += 16
	}
	out = min(out, edgeLeft-14)
	color, marker, dashes := "#5b6472", "a", ""
	switch {
	case a.likely:
		color, marker, dashes = likelyColor, "l", dashed
	case from.member && to.member:
		color, marker = "#c62828", "r"
	case from.knot > 0 && from.knot == to.knot:
		color, marker = likelyColor, "l"
	}
	fmt.Fprintf(w, `<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="%s" stroke-width="1.6"%s`+
		` marker-end="url(#%s)"/>`+"\n", from.x(), y1, from.x()-out, y1, to.x()-out, y2, to.x(), y2, color,
		dashes, marker)
	if a.likely { // in the middle of the curve
		fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="middle" font-size="10" fill="%s" stroke="#fff" `+
			`stroke-width="3" paint-order="stroke">likely</text>`+"\n", (from.x()+to.x()-3*out/2)/2, (y1+y2)/2+4,
			likelyColor)
	}
}

// likelyColor is the color of likely edges and deadlocks.
const likelyColor = "#b35c00"

func abs(n int) int { return max(n, -n) }

// label writes one line, cut to a number of letters.
func label(w *bufio.Writer, x, y int, attributes, text string, letters float64) {
	fmt.Fprintf(w, `<text x="%d" y="%d" %s>%s</text>`, x, y, attributes,
		escape(display.Elide(display.Clean(text), int(letters))))
}

// escape returns text for XML.
func escape(s string) string {
	var b bytes.Buffer
	for i, line := range strings.Split(s, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		xml.EscapeText(&b, []byte(display.Clean(line))) // cannot fail: b is memory
	}
	return b.String()
}

// WaitGraphHTML writes a page about who waits for whom: the deadlocks in words, the picture, and the text of
// WaitGraph with the threads' stacks. The page needs no other file and no network.
func WaitGraphHTML(w io.Writer, s *snapshot.Snapshot, g *snapshot.WaitGraph) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>%s</title>
<style>
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem; color: #1d2430; background: #fff }
pre { font: 12px/1.4 ui-monospace, monospace; overflow-x: auto }
.deadlock { border-left: 4px solid #c62828; background: #fdecea; padding: .5rem .8rem; max-width: 70rem }
.suspected { border-left: 4px solid #b38600; background: #fff8e1; padding: .5rem .8rem; max-width: 70rem }
.picture { overflow-x: auto; border: 1px solid #dde2e8 }
summary { cursor: pointer; padding: .15rem 0 }
</style></head><body>
<h1>%s</h1>
`, html.EscapeString(graphTitle(s)), html.EscapeString(graphTitle(s)))
	for i := range g.Deadlocks {
		fmt.Fprintf(b, "<p class=\"deadlock\">%s.</p>\n", html.EscapeString(DeadlockText(s, &g.Deadlocks[i])))
	}
	for i := range g.Suspected {
		fmt.Fprintf(b, "<p class=\"suspected\">%s.</p>\n", html.EscapeString(DeadlockText(s, &g.Suspected[i])))
	}
	for i := range g.Likely {
		fmt.Fprintf(b, "<p class=\"suspected\">%s.</p>\n", html.EscapeString(LikelyText(s, &g.Likely[i])))
	}
	b.WriteString("<div class=\"picture\">\n")
	newPicture(s, g).draw(b)
	b.WriteString("</div>\n<h2>Locks</h2>\n<pre>")
	if err := WaitGraph(escaping{b}, s, g, WaitGraphOptions{All: true}); err != nil {
		return err
	}
	b.WriteString("</pre>\n")
	htmlStacks(b, s, g)
	b.WriteString("</body></html>\n")
	return b.Flush()
}

// escaping writes text into HTML.
type escaping struct{ w *bufio.Writer }

func (e escaping) Write(p []byte) (int, error) {
	_, err := e.w.WriteString(html.EscapeString(string(p)))
	return len(p), err
}

// htmlStacks writes the stacks of waiters and holders, and the stacks of the suspended methods in likely deadlocks.
func htmlStacks(b *bufio.Writer, s *snapshot.Snapshot, g *snapshot.WaitGraph) {
	shown := map[int]bool{}
	for _, e := range g.Edges {
		shown[e.Thread], shown[e.For] = true, true
	}
	for i := range g.Locks {
		if l := &g.Locks[i]; l.IsLock() {
			for _, w := range l.Waiters {
				shown[w.Thread] = true
			}
		}
	}
	var awaits []int
	for i := range g.Likely {
		for _, p := range slices.Concat(g.Likely[i].Members, g.Likely[i].Others) {
			if p.Thread >= 0 {
				shown[p.Thread] = true
			} else {
				awaits = append(awaits, p.Await)
			}
		}
	}
	if len(shown)+len(awaits) == 0 {
		return
	}
	b.WriteString("<h2>Stacks</h2>\n")
	for i := range s.Threads {
		if !shown[i] {
			continue
		}
		t := &s.Threads[i]
		fmt.Fprintf(b, "<details><summary>%s: %s</summary><pre>", html.EscapeString(threadName(s, i)),
			html.EscapeString(display.Clean(stateText(t))))
		p := printer{w: bufio.NewWriter(escaping{b})}
		p.stack(Group{t})
		p.w.Flush()
		b.WriteString("</pre></details>\n")
	}
	for _, at := range awaits {
		htmlAwait(b, s, at)
	}
}

// htmlAwait writes the place of a suspended method, and the methods that await it.
func htmlAwait(b *bufio.Writer, s *snapshot.Snapshot, at int) {
	a := &s.Awaits[at]
	fmt.Fprintf(b, "<details><summary>%s", html.EscapeString(nodeName(s, snapshot.AwaitNode(at))))
	if a.WaitsFor != nil {
		b.WriteString(": awaits " + html.EscapeString(awaitedText(a.WaitsFor)))
	}
	b.WriteString("</summary><pre>")
	p := printer{w: bufio.NewWriter(escaping{b})}
	for i := range a.Frames {
		p.text("  ")
		p.managed(&a.Frames[i], 2)
		p.end()
	}
	p.w.Flush()
	b.WriteString("</pre></details>\n")
}
