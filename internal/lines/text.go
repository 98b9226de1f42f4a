package lines

import (
	"bytes"
	"cmp"
	"iter"
	"math"
	"path"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"clrsnap/internal/source"
	"clrsnap/profile"
)

// Bounds of the text in a recording.
const (
	maxText    = 1 << 20 // bytes of all texts
	maxMethods = 300     // methods with text: the methods with the most samples
	maxLine    = 300     // bytes of one line
	maxWhole   = 80      // a method with up to so many lines is shown whole
	around     = 6       // lines before and after a recorded line, in a longer method
	before     = 2       // lines before a method's first line: its code begins after its name
	after      = 1
)

// sourceEnds are the ends of the names of files that are read only because the compiler wrote their
// names.
var sourceEnds = []string{".cs", ".fs", ".vb", ".razor", ".cshtml", ".il"}

// texts adds the text around the recorded lines of the hottest methods.
func (a *adder) texts() {
	wanted := a.wanted()
	size := 0
	for _, w := range wanted {
		f := &a.r.Files[w.file]
		if len(f.Text) > 0 {
			continue // the file had text already
		}
		text := a.textOf(w.file)
		if text == nil {
			continue
		}
		for _, x := range excerpts(text, w.lines) {
			for _, l := range x.Lines {
				size += len(l)
			}
			if size > maxText {
				return
			}
			f.Text = append(f.Text, x)
		}
	}
}

// want lists the wanted lines of a file, ascending.
type want struct {
	file  int32
	lines []int32
}

// wanted returns the wanted lines, in the order of the hottest methods of their files.
func (a *adder) wanted() []want {
	lines := map[int32][]int32{} // recorded lines, by method
	for i := range a.r.Locations {
		l := &a.r.Locations[i]
		if l.Method > 0 && l.Line > 0 && a.hot[l.Method] > 0 {
			lines[l.Method] = append(lines[l.Method], l.Line)
		}
	}
	var methods []int32
	for m := range lines {
		methods = append(methods, m)
	}
	slices.SortFunc(methods, func(x, y int32) int { return cmp.Or(cmp.Compare(a.hot[y], a.hot[x]), cmp.Compare(x, y)) })
	index := map[int32]int{}
	var out []want
	for _, m := range methods[:min(len(methods), maxMethods)] {
		a.eachLine(m, lines[m], func(file, line int32) {
			i, ok := index[file]
			if !ok {
				i = len(out)
				index[file] = i
				out = append(out, want{file: file})
			}
			out[i].lines = append(out[i].lines, line)
		})
	}
	for i := range out {
		slices.Sort(out[i].lines)
		out[i].lines = slices.Compact(out[i].lines)
	}
	return out
}

// eachLine calls add with the lines to show of a method: all lines of a short method, else the lines
// around the recorded lines.
func (a *adder) eachLine(method int32, recorded []int32, add func(file, line int32)) {
	m := &a.r.Methods[method]
	if m.File > 0 && m.Last-m.First < maxWhole {
		for line := int64(m.First) - before; line <= int64(m.Last)+after; line++ {
			add(m.File, int32(min(line, math.MaxInt32)))
		}
	}
	for _, i := range recorded {
		l := &a.r.Lines[i]
		for line := int64(l.Line) - around; line <= int64(l.Line)+around; line++ {
			add(l.File, int32(min(line, math.MaxInt32)))
		}
	}
}

// textOf returns the text of a file; nil: there is none.
func (a *adder) textOf(i int32) []byte {
	if b := a.text[i]; b != nil {
		return b
	}
	f := &a.r.Files[i]
	var b []byte
	switch {
	case f.Path != "":
		b, _ = a.o.Roots.Text(f.Path, f.Checksum.Algorithm, f.Checksum.Sum)
	case a.o.Local && path.IsAbs(f.Name) && slices.Contains(sourceEnds, strings.ToLower(path.Ext(f.Name))):
		b, _ = source.Text(f.Name, f.Checksum.Algorithm, f.Checksum.Sum)
	}
	return b
}

// excerpts returns the pieces of a text with the wanted lines.
func excerpts(text []byte, wanted []int32) []profile.Excerpt {
	var out []profile.Excerpt
	number, next := int32(0), 0
	for line := range textLines(decoded(text)) {
		number++
		for next < len(wanted) && wanted[next] < number {
			next++
		}
		if next == len(wanted) {
			break
		}
		if wanted[next] != number {
			continue
		}
		if n := len(out); n == 0 || out[n-1].First+int32(len(out[n-1].Lines)) != number {
			out = append(out, profile.Excerpt{First: number})
		}
		x := &out[len(out)-1]
		x.Lines = append(x.Lines, clipped(line))
	}
	return out
}

// lineEnds are the characters that end a line for C#'s compiler (ECMA-334, 6.3.3); a carriage return
// and a line feed together end one line.
const lineEnds = "\r\n\u0085\u2028\u2029"

// textLines yields the lines of a text without their ends.
func textLines(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text != "" {
			line, rest := text, ""
			if i := strings.IndexAny(text, lineEnds); i >= 0 {
				_, n := utf8.DecodeRuneInString(text[i:])
				if strings.HasPrefix(text[i:], "\r\n") {
					n = 2
				}
				line, rest = text[:i], text[i+n:]
			}
			if !yield(line) {
				return
			}
			text = rest
		}
	}
}

// decoded returns a text as UTF-8: compilers also read UTF-16 with a byte order mark.
func decoded(b []byte) string {
	if rest, ok := bytes.CutPrefix(b, []byte{0xef, 0xbb, 0xbf}); ok {
		b = rest
	}
	if len(b) >= 2 && (b[0] == 0xff && b[1] == 0xfe || b[0] == 0xfe && b[1] == 0xff) {
		low, high := 0, 1
		if b[0] == 0xfe {
			low, high = 1, 0
		}
		units := make([]uint16, 0, len(b)/2)
		for b = b[2:]; len(b) >= 2; b = b[2:] {
			units = append(units, uint16(b[low])|uint16(b[high])<<8)
		}
		return string(utf16.Decode(units))
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// clipped cuts a long line.
func clipped(line string) string {
	if len(line) <= maxLine {
		return line
	}
	end := maxLine
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}
