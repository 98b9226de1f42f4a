package export

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// HeapSVG writes a heap as a picture of a treemap: types in their namespaces by bytes or, with
// Dominators, a tree of dominators. The picture has no script. An area's name, bytes and objects show as
// a tooltip.
func HeapSVG(w io.Writer, h *snapshot.Heap, o HeapMapOptions) error {
	p := &heapPicture{w: bufio.NewWriter(w), h: h, o: &o, tree: heapTreeOf(h), width: float64(cmp.Or(o.Width, 1200))}
	if o.Base != nil {
		p.changes = heapChanges(h, o.Base)
		for _, c := range p.changes {
			p.greatest = max(p.greatest, c, -c)
		}
	}
	p.draw()
	return p.w.Flush()
}

// Measures of the picture in pixels.
const (
	heapHead   = 16 // height of a group's title
	heapGap    = 2
	heapLeast  = 1.0 // least side of a drawn area
	heapLevels = 6   // groups in groups
)

type heapPicture struct {
	w        *bufio.Writer
	h        *snapshot.Heap
	o        *HeapMapOptions
	tree     *heapTree
	width    float64
	changes  map[heapTypeKey]int64 // nil: there is no earlier heap
	greatest int64
	origins  [3]bool
}

// box is an area.
type box struct{ x, y, w, h float64 }

func (p *heapPicture) draw() {
	foot := float64(svgLine * (3 + len(p.o.Notes)))
	area := box{svgMargin, svgTop, p.width - 2*svgMargin, p.width * 0.6}
	height := area.y + area.h + foot
	fmt.Fprintf(p.w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f"`+
		` font-family="system-ui, Verdana, 'DejaVu Sans', sans-serif" font-size="11">
<style>text { pointer-events: none } g:hover > rect { stroke: #000 }</style>
<rect width="100%%" height="100%%" fill="#fff"/>
`, p.width, height, p.width, height)
	p.text(svgMargin, 20, `font-size="15" font-weight="600"`, cmp.Or(p.o.Title, heapTitle(p.h)), 1.4)
	facts := heapFacts(p.h)
	if p.o.Base != nil {
		facts = append(facts, sinceText(p.h, p.o.Base))
	}
	if p.o.Version != "" {
		facts = append(facts, "clrsnap "+p.o.Version)
	}
	p.text(svgMargin, 39, `fill="#565d69"`, strings.Join(facts, " · "), 1)
	p.inside(0, area, 0)
	y := int(area.y+area.h) + svgLine
	p.legend(y)
	for _, note := range p.o.Notes {
		y += svgLine
		p.text(svgMargin, y, `fill="#6b4a00"`, note, 1)
	}
	p.w.WriteString("</svg>\n")
}

// inside draws the content of a node's area.
func (p *heapPicture) inside(i int32, area box, depth int) {
	n := &p.tree.nodes[i]
	below := p.tree.first[i]
	rest := n.total.Bytes
	weights := make([]float64, 0, len(below)+1)
	for _, c := range below {
		weights = append(weights, float64(p.tree.nodes[c].total.Bytes))
		rest -= min(rest, p.tree.nodes[c].total.Bytes)
	}
	for k, b := range divide(weights, float64(rest), area) {
		if k < len(below) {
			p.node(below[k], b, depth)
		}
	}
}

// node draws a node, and its content.
func (p *heapPicture) node(i int32, b box, depth int) {
	if b.w < heapLeast || b.h < heapLeast {
		return
	}
	label := p.tree.label(p.h, i)
	for next := p.only(i); next > 0; next = p.only(i) {
		i = next
		label += " › " + p.tree.label(p.h, i)
	}
	group := len(p.tree.first[i]) > 0
	fill, ink := p.color(i)
	if group && depth < heapLevels {
		fill, ink = rgb(220, 0.12, 0.92-0.05*float64(depth)), "#16181d"
	}
	fmt.Fprintf(p.w, `<g><title>%s</title><rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"/>`,
		escaped(label+"\n"+p.describe(i)), b.x, b.y, max(b.w-0.7, 0.3), max(b.h-0.7, 0.3), fill)
	if b.w > 26 && b.h > 13 && (!group || b.h > 36) {
		fmt.Fprintf(p.w, `<text x="%.2f" y="%.2f" fill="%s"%s>%s</text>`, b.x+3, b.y+min(12, b.h/2+4), ink,
			map[bool]string{true: ` font-weight="600"`}[group], escaped(cut([]rune(display.Clean(label)), b.w-6)))
	}
	if figure := display.Weight(profile.Bytes, int64(p.tree.nodes[i].total.Bytes)); !group && b.h > 28 &&
		textWidth([]rune(figure)) < b.w-6 {
		fmt.Fprintf(p.w, `<text x="%.2f" y="%.2f" fill="%s">%s</text>`, b.x+3, b.y+25, ink, escaped(figure))
	}
	p.w.WriteString("</g>\n")
	if !group || depth >= heapLevels {
		return
	}
	head := float64(heapGap)
	if b.w > 26 && b.h > 36 {
		head = heapHead
	}
	if in := (box{b.x + heapGap, b.y + head, b.w - 2*heapGap, b.h - head - heapGap}); in.w > 3 && in.h > 3 {
		p.inside(i, in, depth+1)
	}
}

// only is the single child that makes up nearly all of a dominator; 0: there is none. Both are one
// area.
func (p *heapPicture) only(i int32) int32 {
	if below := p.tree.first[i]; p.h.Dominators != nil && len(below) > 0 &&
		float64(p.tree.nodes[below[0]].total.Bytes) >= 0.99*float64(p.tree.nodes[i].total.Bytes) {
		return below[0]
	}
	return 0
}

// color returns the colours of a type's area and of its text.
func (p *heapPicture) color(i int32) (fill, ink string) {
	n := &p.tree.nodes[i]
	if n.typ < 0 {
		return "#dfe3e9", "#16181d"
	}
	t := &p.h.Types[n.typ]
	if p.changes != nil {
		grown := p.changes[heapTypeKey{t.Name, t.Assembly, t.Context}]
		return p.change(float64(grown) / float64(max(p.greatest, 1))), "#16181d"
	}
	of := typeOrigin(t)
	p.origins[of] = true
	paint := svgLegend[of].paint
	return paint.fill(spread(t.Assembly), spread(t.Name)), paint.ink
}

// change is the colour of a change, given as −1 … 1 of the greatest change, as in
// flamegraph/colors.js.
func (p *heapPicture) change(by float64) string {
	same, to := [3]float64{228, 231, 236}, [3]float64{232, 96, 74}
	if by < 0 {
		to, by = [3]float64{92, 146, 226}, -by
	}
	by = math.Sqrt(min(by, 1))
	mix := func(k int) int { return int(math.Round(same[k] + (to[k]-same[k])*by)) }
	return fmt.Sprintf("#%02x%02x%02x", mix(0), mix(1), mix(2))
}

// describe is the text of a tooltip.
func (p *heapPicture) describe(i int32) string {
	n := &p.tree.nodes[i]
	all := p.h.Objects().Bytes
	text := fmt.Sprintf("%s (%s)", display.Weight(profile.Bytes, int64(n.total.Bytes)),
		percent(int64(n.total.Bytes), int64(all)))
	if n.typ < 0 {
		return text
	}
	t := &p.h.Types[n.typ]
	text = t.Name + "\n" + text
	if p.h.Dominators != nil {
		text += " retained"
	}
	text += fmt.Sprintf("\n%s objects with %s", display.Number(int(n.own.Count)),
		display.Weight(profile.Bytes, int64(n.own.Bytes)))
	if p.changes != nil {
		text += "\n" + signedBytes(p.changes[heapTypeKey{t.Name, t.Assembly, t.Context}])
	}
	return text + "\n" + t.From()
}

// legend explains the colours and the areas.
func (p *heapPicture) legend(y int) {
	x := float64(svgMargin)
	entry := func(fill, text string) {
		fmt.Fprintf(p.w, `<rect x="%.0f" y="%d" width="20" height="11" fill="%s"/>`, x, y-9, fill)
		p.text(x+25, y, `fill="#565d69"`, text, 1)
		x += 45 + textWidth([]rune(text))
	}
	if p.changes != nil {
		entry(p.change(1), "has grown, by "+display.Weight(profile.Bytes, p.greatest)+" at most")
		entry(p.change(-1), "has shrunk")
	}
	for of, there := range p.origins {
		if there {
			entry(svgLegend[of].paint.fill(0.3, 0.5), svgLegend[of].text)
		}
	}
	what := "Areas are bytes."
	if p.h.Dominators != nil {
		what = "An area is the memory that its objects keep alive; inside are objects that nothing else keeps."
	}
	p.text(x, y, `fill="#565d69"`, what, 1)
}

// text writes one line.
func (p *heapPicture) text(x float64, y int, attributes, s string, size float64) {
	fmt.Fprintf(p.w, `<text x="%.0f" y="%d" %s>%s</text>`+"\n", x, y, attributes,
		escaped(cut([]rune(display.Clean(s)), (p.width-x-svgMargin)/size)))
}

// divide divides an area among weights, the largest first, and a rest, which comes last. The areas are
// as square as possible: squarified treemaps (Bruls, Huizing and van Wijk, 2000). The last box is for
// the rest, if there is a rest.
func divide(weights []float64, rest float64, in box) []box {
	if rest > 0 {
		weights = append(weights, rest)
	}
	left := 0.0
	for _, w := range weights {
		left += w
	}
	out := make([]box, 0, len(weights))
	for len(weights) > 0 && weights[0] > 0 && left > 0 && in.w > 0 && in.h > 0 {
		n, sum := row(weights, min(in.w, in.h), in.w*in.h/left)
		thick, at := sum*in.w*in.h/left/min(in.w, in.h), 0.0
		down := in.w < in.h
		for _, w := range weights[:n] {
			length := w / sum * min(in.w, in.h)
			if down {
				out = append(out, box{in.x + at, in.y, length, thick})
			} else {
				out = append(out, box{in.x, in.y + at, thick, length})
			}
			at += length
		}
		if down {
			in.y, in.h = in.y+thick, in.h-thick
		} else {
			in.x, in.w = in.x+thick, in.w-thick
		}
		left -= sum
		weights = weights[n:]
	}
	return out
}

// row returns how many weights stand side by side along a side, and their sum. scale is the area of a
// weight of 1.
func row(weights []float64, side, scale float64) (n int, sum float64) {
	worst := math.Inf(1)
	for i, w := range weights {
		thick := (sum + w) * scale / side
		ratio := max(weights[0]*scale/thick/thick, thick*thick/(w*scale))
		if i > 0 && (ratio > worst || w <= 0) {
			break
		}
		worst = ratio
		n, sum = i+1, sum+w
	}
	return n, sum
}
