package export

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// SVGOptions are the options of SVG. The zero value works.
type SVGOptions struct {
	Title string // empty: the program and the time of the recording
	// Mode is the drawn mode. The zero value, CPU, stands for the first mode with samples in the
	// recording.
	Mode  profile.Mode
	Width int  // in pixels; 0: 1200
	Flame bool // the root is at the bottom, not at the top
	Idle  bool // with the samples of idle threads
}

// SVG writes one mode of a recording as a picture of a flame graph. The picture has no
// script. A frame's name, weight, share and source lines show as a tooltip.
func SVG(w io.Writer, r *profile.Recording, o SVGOptions) error {
	o.Mode = modeOrFirst(r, o.Mode)
	shown := r.Select(profile.Selection{Modes: []profile.Mode{o.Mode}, Working: !o.Idle, Roles: true})
	p := &svgPicture{
		w: bufio.NewWriter(w), o: o, r: r, width: float64(cmp.Or(o.Width, 1200)), shown: shown,
		tree: newFrameTree(shown, o.Mode),
	}
	if p.measure(0, 0); p.size > MaxOutput {
		return ErrTooLarge
	}
	p.head()
	p.frame(0, svgMargin, 0)
	p.foot()
	return p.w.Flush()
}

const (
	svgMargin = 10
	svgRow    = 17   // height of a frame
	svgTop    = 52   // of the first frame
	svgLine   = 16   // height of a line of text
	svgLeast  = 0.1  // least width of a drawn frame
	svgText   = 26.0 // least width of a frame with text
)

type svgPicture struct {
	w       *bufio.Writer
	o       SVGOptions
	r       *profile.Recording
	shown   *profile.Recording // the drawn part of the recording
	tree    *frameTree
	width   float64
	rows    int
	frames  int // drawn
	dropped int // frames that are too narrow
	size    int // bytes, about
	origins [len(svgLegend)]bool
}

// scale returns the width of one unit of weight, in pixels.
func (p *svgPicture) scale() float64 {
	if all := p.tree.frames[0].total.Weight; all > 0 {
		return (p.width - 2*svgMargin) / float64(all)
	}
	return 0
}

// measure counts rows, frames and bytes, and frames too narrow to be drawn.
func (p *svgPicture) measure(i int32, depth int) {
	p.rows = max(p.rows, depth+1)
	p.frames++
	const rest = 300 // bytes besides names
	if p.size += rest; p.size > MaxOutput {
		return
	}
	if f := p.tree.frames[i].function; f != nil {
		p.origins[originIndex(f)] = true
		p.size += len(display.FullName(f)) + len(f.Module)
	}
	for _, c := range p.tree.children(i) {
		switch w := float64(p.tree.frames[c].total.Weight) * p.scale(); {
		case w >= svgLeast:
			p.measure(c, depth+1)
		case w > 0:
			p.dropped += p.tree.count(c)
		}
	}
}

// count returns the number of frames with a weight in a subtree.
func (t *frameTree) count(i int32) int {
	n := 1
	for _, c := range t.children(i) {
		if t.frames[c].total.Weight > 0 {
			n += t.count(c)
		}
	}
	return n
}

func (p *svgPicture) head() {
	remarks := p.remarks()
	height := svgTop + p.rows*svgRow + svgLine*(3+len(remarks))
	fmt.Fprintf(p.w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d"`+
		` font-family="system-ui, Verdana, 'DejaVu Sans', sans-serif" font-size="11">
<style>.f text { pointer-events: none } .f:hover rect { stroke: #000 }</style>
<rect width="100%%" height="100%%" fill="#fff"/>
`, p.width, height, p.width, height)
	p.text(svgMargin, 20, `font-size="15" font-weight="600"`, cmp.Or(p.o.Title, flameTitle(p.r)), 1.4)
	p.text(svgMargin, 39, `fill="#565d69"`, p.subtitle(), 1)
}

// subtitle returns the line below the title: the meaning of the whole width.
func (p *svgPicture) subtitle() string {
	all := &p.tree.frames[0]
	what := fmt.Sprintf("%s: %s", p.o.Mode.Title(), p.amount(all.total, p.tree.errorOf(0).total))
	if p.o.Mode == profile.Wall {
		what = fmt.Sprintf("Wall-clock time, %s, of all threads together: %s thread-seconds",
			p.states(), display.ThreeDigits(time.Duration(all.total.Weight).Seconds()))
	}
	over := display.Weight(profile.Nanoseconds, int64(p.r.Duration))
	parts := []string{fmt.Sprintf("%s (%s) over %s", what, samplesText(all.total.Samples), over)}
	if c := p.r.Cost; c.Processors > 0 && p.r.Duration > 0 {
		parts = append(parts, display.CPUs(c.TargetCPU, p.r.Duration, c.Processors))
	}
	if len(p.r.Processes) > 0 && p.r.Processes[0].Runtime.Version != "" {
		parts = append(parts, ".NET "+p.r.Processes[0].Runtime.Version)
	}
	return strings.Join(append(parts, "clrsnap "+p.r.Version), " · ")
}

// states returns in which states the threads were: the recording may be a selection.
func (p *svgPicture) states() string {
	var there [2]bool
	for i := range p.shown.Samples {
		if s := &p.shown.Samples[i]; s.Mode == p.o.Mode {
			there[s.State] = true
		}
	}
	switch there {
	case [2]bool{profile.Running: true}:
		return "running"
	case [2]bool{profile.Waiting: true}:
		return "waiting"
	}
	return "running and waiting"
}

// remarks returns the sentences below the picture: necessary facts for a viewer.
func (p *svgPicture) remarks() []string {
	var out []string
	if text := display.Idle(p.r, p.o.Mode); text != "" && !p.o.Idle {
		out = append(out, "Left out: "+text+".")
	} else if p.tree.frames[0].total.Weight == 0 {
		out = append(out, fmt.Sprintf("The recording has no samples of this mode (%s).", p.o.Mode))
	}
	if s, ok := p.r.Mode(p.o.Mode); ok && s.Broken+s.Lost > 0 {
		out = append(out, fmt.Sprintf("%d of %d samples have incomplete stacks; %d more were lost.",
			s.Broken, s.Samples, s.Lost))
	}
	if p.dropped > 0 {
		out = append(out, fmt.Sprintf("%d of %d frames are narrower than %g pixels and not drawn.",
			p.dropped, p.dropped+p.frames, svgLeast))
	}
	return append(out, p.r.Notes...)
}

// frame draws a frame and its callees.
func (p *svgPicture) frame(i int32, x float64, depth int) {
	f := &p.tree.frames[i]
	w := float64(f.total.Weight) * p.scale()
	if i == 0 && w == 0 {
		w = p.width - 2*svgMargin
	}
	y := svgTop + depth*svgRow
	if p.o.Flame {
		y = svgTop + (p.rows-1-depth)*svgRow
	}
	fill, ink := svgColor(f, i == 0)
	fmt.Fprintf(p.w, `<g class="f"><title>%s</title><rect x="%.2f" y="%d" width="%.2f" height="%d" rx="1" fill="%s"/>`,
		escaped(p.describe(i)), x, y, max(w-0.5, 0.1), svgRow-1, fill)
	if label := elided(p.short(f), w-6); w >= svgText && label != "" {
		fmt.Fprintf(p.w, `<text x="%.2f" y="%d" fill="%s">%s</text>`, x+3, y+12, ink, escaped(label))
	}
	p.w.WriteString("</g>\n")
	for _, c := range p.tree.children(i) {
		width := float64(p.tree.frames[c].total.Weight) * p.scale()
		if width >= svgLeast {
			p.frame(c, x, depth+1)
		}
		x += width
	}
}

func (p *svgPicture) short(f *treeFrame) string {
	if f.function == nil {
		return p.tree.label(f)
	}
	return display.ShortName(f.function)
}

func (p *svgPicture) describe(i int32) string {
	f := &p.tree.frames[i]
	name, module := p.short(f), ""
	if f.function != nil {
		name, module = display.FullName(f.function), f.function.Module
	}
	all, e := p.tree.frames[0].total.Weight, p.tree.errorOf(i)
	if lines := f.lines.text(p.shown); lines != "" {
		module += "\n" + lines
	}
	return fmt.Sprintf("%s\n%s (%s, %s), self %s (%s)\n%s", name,
		p.amount(f.total, e.total), percent(f.total.Weight, all), samplesText(f.total.Samples),
		p.amount(f.self, e.self), percent(f.self.Weight, all), module)
}

// amount returns an amount as text, with its standard error if the events were chosen by chance.
func (p *svgPicture) amount(a profile.Amount, of profile.Variance) string {
	return display.AmountWithError(p.o.Mode, a, of.Error())
}

func samplesText(n int) string { return display.Number(n) + display.Plural(n, " sample", " samples") }

func percent(part, all int64) string {
	if all <= 0 {
		return "0.0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(all))
}

func (p *svgPicture) foot() {
	y := svgTop + p.rows*svgRow + svgLine
	x := float64(svgMargin)
	for i, l := range svgLegend {
		if !p.origins[i] {
			continue
		}
		fmt.Fprintf(p.w, `<rect x="%.0f" y="%d" width="20" height="11" fill="%s"/>`, x, y-9, l.paint.fill(0.3, 0.5))
		p.text(x+25, y, `fill="#565d69"`, l.text, 1)
		x += 45 + textWidth([]rune(l.text))
	}
	for _, remark := range p.remarks() {
		y += svgLine
		p.text(svgMargin, y, `fill="#6b4a00"`, remark, 1)
	}
	p.w.WriteString("</svg>\n")
}

// text writes one line. A long line is cut, and shows whole as a tooltip.
func (p *svgPicture) text(x float64, y int, attributes, s string, size float64) {
	fmt.Fprintf(p.w, `<text x="%.0f" y="%d" %s>%s<title>%s</title></text>`+"\n",
		x, y, attributes, escaped(cut([]rune(display.Clean(s)), (p.width-x-svgMargin)/size)), escaped(s))
}

// escaped returns text escaped for XML.
func escaped(s string) string {
	var b bytes.Buffer
	for i, line := range strings.Split(s, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		xml.EscapeText(&b, []byte(display.Clean(line))) // cannot fail: EscapeText writes to memory
	}
	return b.String()
}
