package report

import (
	"io"
	"strconv"
	"time"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// HeapOptions are the options of HeapText and HeapJSON. The zero value shows every type, without colours.
type HeapOptions struct {
	Terminal
	Rows int            // how many types, instances and texts to show; 0: all
	Full bool           // no name is shortened
	Base *snapshot.Heap // an earlier heap to compare with; nil: none
}

// HeapText writes the contents of a heap for people.
func HeapText(w io.Writer, h *snapshot.Heap, o HeapOptions) error {
	p := newTop(w, &TopOptions{Terminal: o.Terminal, Full: o.Full})
	p.process(&snapshot.Snapshot{Process: h.Process, CapturedAt: h.CapturedAt})
	p.heapSummary(h)
	p.end()
	p.heapParts(h)
	if h.Memory != nil {
		p.text(memoryText(h.Memory))
		p.end()
	}
	p.end()
	switch {
	case o.Base != nil:
		p.heapChanges(h, &o)
	case h.HasPaths || h.Kept.Count > 0:
		p.heapPaths(h, &o)
	case h.HasInstances || h.Matching.Count > 0:
		p.heapInstances(h, &o)
	default:
		p.heapTypes(h, &o)
	}
	if len(h.Strings) > 0 {
		p.end()
		p.heapStrings(h, &o)
	}
	return p.w.Flush()
}

func bytesText(n uint64) string { return display.Weight(profile.Bytes, int64(n)) }

func countText(n uint64) string { return display.Number(int(n)) }

// heapSummary prints the totals, and caveats.
func (p *printer) heapSummary(h *snapshot.Heap) {
	all := h.Objects()
	head := []cell{
		{bytesText(all.Bytes), bold},
		{countText(all.Count) + display.Plural(int(all.Count), " object", " objects"), plain},
		{countText(uint64(len(h.Types))) + display.Plural(len(h.Types), " type", " types"), plain},
		{bytesText(h.Free()) + " free between them", plain},
	}
	if n := h.Heaps(); n > 1 {
		head = append(head, cell{countText(uint64(n)) + " heaps", plain})
	}
	if h.Duration > 0 {
		head = append(head, cell{"read in " + strconv.FormatFloat(h.Duration.Seconds(), 'g', 3, 64) + " s", dim})
	}
	if h.Stop != nil && h.Stop.Exact {
		head = append(head, cell{heapStopText(h.Stop), plain})
	}
	p.parts(head...)
	for _, note := range HeapNotes(h) {
		p.paint(yellow, note)
		p.end()
	}
}

// HeapNotes say what the numbers of a heap lack, in sentences.
func HeapNotes(h *snapshot.Heap) (notes []string) {
	notes = heapStopNotes(h.Stop, h.Partial)
	if h.Partial {
		notes = append(notes, "Interrupted: only a part of the heap was read.")
	}
	if h.Collecting {
		notes = append(notes, "The dump was made in the middle of a garbage collection: "+
			"some objects may be missing, or counted twice.")
	}
	if h.GraphCut {
		notes = append(notes, "There are more objects and references than can be kept: ways can be missing, "+
			"and what objects retain can be wrong.")
	}
	if h.RootsMoved {
		notes = append(notes, "The garbage collector ran before the roots were read: ways can begin wrong.")
	}
	for _, lack := range h.RootsLack {
		notes = append(notes, "Some roots are not known: "+display.Clean(lack))
	}
	if share := h.ConsistentShare; share < 1 && !h.Partial && !h.Collecting {
		text := display.Percent(min(share, 0.999)) // nothing is rounded up to all
		notes = append(notes, text+" of the heap was read without a garbage collection in between. "+
			"In the rest, objects may be missing, or counted twice"+atOnceHint(h)+".")
	}
	return notes
}

// heapParts prints a row for each generation.
func (p *printer) heapParts(h *snapshot.Heap) {
	n := newNumbers("objects", "bytes", "free", "fragmented", "consistent")
	n.fit(0, countText(h.Objects().Count))
	n.fit(1, "1,000.0 MiB")
	n.fit(2, "1,000.0 MiB")
	p.numbersHead(n, "generation")
	for g := range snapshot.Generation(snapshot.Generations) {
		x := h.Generation(g)
		if x.Size == 0 {
			continue
		}
		p.numbersRow(n, cell{countText(x.Objects.Count), plain}, cell{bytesText(x.Objects.Bytes), plain},
			cell{bytesText(x.Free.Bytes), plain}, percentage(float64(x.Free.Bytes)/float64(x.Size)),
			percentage(float64(x.ConsistentBytes)/float64(x.Size)))
		p.text(g.String())
		p.end()
	}
}

// heapTypes prints the types with the most bytes.
func (p *printer) heapTypes(h *snapshot.Heap, o *HeapOptions) {
	all := h.Objects()
	titles := []string{"%", "bytes", "objects", "old %"}
	if h.HasRetained {
		titles = append(titles, "retained")
	}
	n := newNumbers(titles...)
	n.fit(1, "1,000.0 MiB")
	n.fit(2, countText(all.Count))
	if h.HasRetained {
		n.fit(len(titles)-1, "1,000.0 MiB")
	}
	p.numbersHead(n, "type")
	rows := firstOf(h.Types, o.Rows)
	for i := range rows {
		t := &rows[i]
		young := t.Generations[snapshot.Gen0].Bytes + t.Generations[snapshot.Gen1].Bytes
		cells := []cell{
			percentage(float64(t.Bytes) / float64(max(all.Bytes, 1))), {bytesText(t.Bytes), plain},
			{countText(t.Count), plain}, percentage(1 - float64(young)/float64(max(t.Bytes, 1))),
		}
		if h.HasRetained {
			cells = append(cells, cell{bytesText(t.Retained), plain})
		}
		p.numbersRow(n, cells...)
		p.heapType(t.Name, t.From(), n.used)
	}
	p.heapMore(len(h.Types)-len(rows), "type", "types")
}

// heapType prints a type's name and ends the line.
func (p *printer) heapType(name, assembly string, used int) {
	p.named(&snapshot.Frame{Kind: snapshot.Event, Display: name, Short: display.WithoutNamespaces(name),
		Module: assembly}, used, magenta)
	p.end()
}

func firstOf[T any](all []T, most int) []T {
	if most > 0 && len(all) > most {
		return all[:most]
	}
	return all
}

func (p *printer) heapMore(n int, one, many string) {
	if n > 0 {
		p.paint(dim, "  and "+countText(uint64(n))+" more "+display.Plural(n, one, many)+": --limit 0 shows all")
		p.end()
	}
}

// heapChanges prints the types with the largest changes since an earlier heap, growth and shrinkage.
func (p *printer) heapChanges(h *snapshot.Heap, o *HeapOptions) {
	before, now := o.Base.Objects(), h.Objects()
	line := "Since the earlier heap: " + signedBytes(int64(now.Bytes)-int64(before.Bytes)) + ", " +
		signedNumber(int64(now.Count)-int64(before.Count)) + " objects"
	if d := h.CapturedAt.Sub(o.Base.CapturedAt); d > 0 && !o.Base.CapturedAt.IsZero() {
		line += ", in " + d.Round(100*time.Millisecond).String()
	}
	p.text(line)
	p.end()
	if o.Base.Collecting {
		p.paint(yellow, "The earlier heap is of a dump that was made in the middle of a garbage collection.")
		p.end()
	}
	p.end()
	changes := h.ChangeFrom(o.Base)
	n := newNumbers("bytes", "objects", "now", "objects")
	n.fit(0, "+1,000.0 MiB")
	n.fit(2, "1,000.0 MiB")
	n.fit(1, "+"+countText(now.Count))
	n.fit(3, countText(now.Count))
	p.numbersHead(n, "type")
	rows := firstOf(changes, o.Rows)
	for i := range rows {
		c := &rows[i]
		p.numbersRow(n, cell{signedBytes(c.Bytes), growth(c.Bytes)}, cell{signedNumber(c.Count), growth(c.Count)},
			cell{bytesText(c.Now.Bytes), plain}, cell{countText(c.Now.Count), plain})
		p.heapType(c.Name, c.From(), n.used)
	}
	p.heapMore(len(changes)-len(rows), "type that has changed", "types that have changed")
}

func growth(n int64) style {
	switch {
	case n > 0:
		return red
	case n < 0:
		return green
	}
	return plain
}

func signedBytes(n int64) string {
	if n < 0 {
		return "-" + bytesText(uint64(-n))
	}
	return "+" + bytesText(uint64(n))
}

func signedNumber(n int64) string {
	if n < 0 {
		return "-" + countText(uint64(-n))
	}
	return "+" + countText(uint64(n))
}

// noMatch is for requested types without objects.
func (p *printer) noMatch(h *snapshot.Heap) {
	p.text("no object is of a type that matches")
	if len(h.Nearest) > 0 {
		p.text("; the nearest names are:")
	}
	p.end()
	for _, name := range h.Nearest {
		p.text("  ")
		p.paint(magenta, display.Clean(name))
		p.end()
	}
}

// heapInstances prints the largest objects of the requested types.
func (p *printer) heapInstances(h *snapshot.Heap, o *HeapOptions) {
	if h.Matching.Count == 0 {
		p.noMatch(h)
		return
	}
	p.text(countText(h.Matching.Count) + display.Plural(int(h.Matching.Count), " object matches", " objects match") +
		", with " + bytesText(h.Matching.Bytes) + " together")
	p.end()
	p.end()
	n := newNumbers("bytes", "generation", "address")
	n.fit(0, "1,000,000,000")
	n.fit(2, "0x7fff12345678")
	p.numbersHead(n, "type")
	rows := firstOf(h.Instances, o.Rows)
	for i := range rows {
		x := &rows[i]
		p.numbersRow(n, cell{countText(x.Bytes), plain}, cell{x.Generation.String(), plain},
			cell{hex(x.Address), dim})
		p.heapType(x.Type+leading(x.Of), "", n.used)
	}
	if left := int(h.Matching.Count) - len(rows); left > 0 {
		p.paint(dim, "  and "+countText(uint64(left))+" more, none of them larger: --limit shows more")
		p.end()
	}
}

// leading returns a space and a text, or "" for no text.
func leading(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}

// heapStrings prints the texts that use most bytes.
func (p *printer) heapStrings(h *snapshot.Heap, o *HeapOptions) {
	n := newNumbers("bytes", "strings")
	n.fit(0, "1,000.0 MiB")
	n.fit(1, countText(h.Objects().Count))
	p.numbersHead(n, "text")
	rows := firstOf(h.Strings, o.Rows)
	for i := range rows {
		s := &rows[i]
		p.numbersRow(n, cell{bytesText(s.Bytes), plain}, cell{countText(s.Count), plain})
		text := strconv.Quote(s.Text)
		if s.Cut {
			text += "…"
		}
		most := longestName
		if o.Width > 0 {
			most = max(o.Width-n.used, shortestName)
		}
		if !o.Full {
			text = display.Clip(text, most)
		}
		p.text(display.Clean(text))
		p.end()
	}
}

// heapPaths prints the references that keep the requested objects.
func (p *printer) heapPaths(h *snapshot.Heap, o *HeapOptions) {
	if h.Kept.Count == 0 {
		p.noMatch(h)
		return
	}
	p.text(countText(h.Kept.Count) + display.Plural(int(h.Kept.Count), " object", " objects") + " with " +
		bytesText(h.Kept.Bytes) + ", and the shortest ways to them:")
	p.end()
	rows := firstOf(h.Paths, o.Rows)
	for i := range rows {
		x := &rows[i]
		p.end()
		about := ""
		if x.Sampled {
			about = "about "
		}
		p.paint(bold, about+countText(x.Objects.Count)+display.Plural(int(x.Objects.Count), " object", " objects"))
		p.text(", " + about + bytesText(x.Objects.Bytes) + ", kept by")
		p.end()
		p.text("    ")
		p.paint(yellow, display.Clean(x.Beginning()))
		p.end()
		for j := range x.Steps {
			p.heapStep(&x.Steps[j])
		}
	}
	if n := len(h.Paths) - len(rows); n > 0 {
		p.end()
	}
	p.heapMore(len(h.Paths)-len(rows), "way", "ways")
	if n := h.OtherPaths.Count; n > 0 {
		p.paint(dim, "  and "+countText(n)+display.Plural(int(n), " object", " objects")+" in still other ways")
		p.end()
	}
}

func (p *printer) heapStep(s *snapshot.HeapStep) {
	const indent = "  → "
	if s.Gap {
		p.paint(dim, indent+"… (a way of more than a thousand objects)")
		p.end()
	}
	p.text(indent)
	name, tail := display.Clean(s.Type), ""
	if s.Of != "" {
		tail = " " + display.Clean(s.Of)
	}
	if s.Field != "" {
		tail += "." + display.Clean(s.Field)
	}
	if s.Dependent {
		tail += "  (dependent handle)"
	}
	if s.ByType {
		tail += "  (its type keeps the load context)"
	}
	if s.Static != "" {
		tail += "  (static field " + display.Clean(s.Static) + ")"
	}
	if s.Times > 1 {
		tail += "  ↻ " + countText(uint64(s.Times)) + " in a row"
	}
	if most := p.o.Width - display.Width(indent+tail); p.o.Width > 0 && !p.o.Full && display.Width(name) > most {
		name = display.Elide(display.Clean(display.WithoutNamespaces(s.Type)), max(most, shortestName))
	}
	p.paint(magenta, name)
	p.text(tail)
	p.end()
}
