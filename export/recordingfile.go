package export

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"clrsnap/profile"
)

// The beginning of a recording's file, and the version of the format that is written.
// docs/recording.md describes the format.
const (
	recordingFormat  = "clrsnap recording"
	recordingVersion = 2
	creatorName      = "clrsnap"
)

// WriteRecording writes a recording in clrsnap's own format, which keeps everything: one
// JSON document, whose tables are stored by column, compressed with gzip. ReadRecording
// returns an equal recording, except that invalid UTF-8 in names has become U+FFFD. It
// returns an error if an index or a number of r is not valid.
func WriteRecording(w io.Writer, r *profile.Recording) error {
	if err := checkRecording(r); err != nil {
		return fmt.Errorf("the recording is not valid: %w", err)
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	c := columnWriter{w: bufio.NewWriterSize(z, 1<<16)}
	writeDocument(&c, r)
	if c.err != nil {
		return c.err
	}
	if err := c.w.Flush(); err != nil {
		return err
	}
	return z.Close()
}

func writeDocument(c *columnWriter, r *profile.Recording) {
	text := stringTable(r)
	c.text(`{"format":`)
	c.value(recordingFormat)
	c.field("version", recordingVersion)
	c.field("creator", creator(r))
	c.field("start", r.Start.UTC().Format(time.RFC3339Nano))
	c.field("duration", int64(r.Duration))
	c.field("processes", processesOut(r.Processes))
	c.field("threads", threadsOut(r.Threads))
	c.text(",\n\"strings\":")
	c.list(len(text.list), func(i int) { c.value(text.list[i]) })

	c.table("functions")
	f := r.Functions
	c.column("kind", len(f), func(i int) int64 { return int64(kindNumber(f[i].Kind)) })
	c.column("method", len(f), func(i int) int64 { return text.at(f[i].Method) })
	c.column("display", len(f), func(i int) int64 { return text.at(f[i].Display) })
	c.column("short", len(f), func(i int) int64 { return text.at(f[i].Short) })
	c.column("signature", len(f), func(i int) int64 { return text.at(f[i].Signature) })
	c.column("module", len(f), func(i int) int64 { return text.at(f[i].Module) })
	c.end()

	c.table("locations")
	l := r.Locations
	c.column("function", len(l), func(i int) int64 { return int64(l[i].Function) })
	c.key("offset")
	c.list(len(l), func(i int) { c.unsigned(l[i].Offset) })
	c.column("tier", len(l), func(i int) int64 { return text.at(l[i].Tier) })
	c.end()

	c.table("nodes")
	c.column("parent", len(r.Nodes), func(i int) int64 { return int64(r.Nodes[i].Parent) })
	c.column("location", len(r.Nodes), func(i int) int64 { return int64(r.Nodes[i].Location) })
	c.end()

	writeSamples(c, r.Samples)
	c.field("modes", modesOut(r.Modes))
	c.field("cost", costOut(r.Cost))
	c.field("notes", append([]string{}, r.Notes...))
	c.text("}\n")
}

func writeSamples(c *columnWriter, s []profile.Sample) {
	c.table("samples")
	before := time.Duration(0)
	c.column("at", len(s), func(i int) int64 {
		d := s[i].At - before
		before = s[i].At
		return int64(d)
	})
	c.column("weight", len(s), func(i int) int64 { return s[i].Weight })
	c.column("events", len(s), func(i int) int64 { return s[i].Events })
	c.column("count", len(s), func(i int) int64 { return int64(s[i].Count) })
	c.column("thread", len(s), func(i int) int64 { return int64(s[i].Thread) })
	c.column("node", len(s), func(i int) int64 { return int64(s[i].Node) })
	c.column("mode", len(s), func(i int) int64 { return int64(s[i].Mode) })
	c.column("state", len(s), func(i int) int64 { return int64(s[i].State) })
	var incomplete []int
	for i := range s {
		if s[i].Incomplete {
			incomplete = append(incomplete, i)
		}
	}
	c.column("incomplete", len(incomplete), func(i int) int64 { return int64(incomplete[i]) })
	c.end()
}

// stringsOf is the string table of a recording.
type stringsOf struct {
	list  []string
	index map[string]int64
}

func stringTable(r *profile.Recording) *stringsOf {
	t := &stringsOf{index: map[string]int64{}}
	t.at("")
	for i := range r.Functions {
		f := &r.Functions[i]
		for _, s := range [...]string{f.Method, f.Display, f.Short, f.Signature, f.Module} {
			t.at(s)
		}
	}
	for i := range r.Locations {
		t.at(r.Locations[i].Tier)
	}
	return t
}

func (t *stringsOf) at(s string) int64 {
	i, ok := t.index[s]
	if !ok {
		i = int64(len(t.list))
		t.index[s] = i
		t.list = append(t.list, s)
	}
	return i
}

// kinds are the kinds of function by their numbers in the file.
var kinds = [...]profile.Kind{profile.Managed, profile.Native, profile.Kernel, profile.Event}

// kindNumber returns the index of a kind in kinds, or -1.
func kindNumber(k profile.Kind) int {
	for i := range kinds {
		if kinds[i] == k {
			return i
		}
	}
	return -1
}

// columnWriter writes JSON as a stream, so that columns are never in memory as a whole. It
// keeps the first error.
type columnWriter struct {
	w     *bufio.Writer
	buf   []byte
	first bool // the next column is its table's first
	err   error

	enc     *json.Encoder // into encoded; nil: not needed yet
	encoded bytes.Buffer
}

func (c *columnWriter) text(s string) {
	if _, err := c.w.WriteString(s); err != nil && c.err == nil {
		c.err = err
	}
}

// field writes a field of the document that is not the first.
func (c *columnWriter) field(name string, v any) {
	c.text(",\n\"" + name + "\":")
	c.value(v)
}

// value writes any small value.
func (c *columnWriter) value(v any) { c.encode(v, "\n") }

// open writes an object without its closing brace, so that fields can follow.
func (c *columnWriter) open(v any) { c.encode(v, "}\n") }

// encode writes a value without this end.
func (c *columnWriter) encode(v any, end string) {
	if c.enc == nil {
		c.enc = json.NewEncoder(&c.encoded)
		c.enc.SetEscapeHTML(false) // names are full of < and >
	}
	c.encoded.Reset()
	if err := c.enc.Encode(v); err != nil && c.err == nil {
		c.err = err
	}
	c.write(bytes.TrimSuffix(c.encoded.Bytes(), []byte(end)))
}

func (c *columnWriter) flush() error {
	if c.err != nil {
		return c.err
	}
	return c.w.Flush()
}

// table begins an object of columns.
func (c *columnWriter) table(name string) {
	c.text(",\n\"" + name + "\":{")
	c.first = true
}

func (c *columnWriter) end() { c.text("}") }

func (c *columnWriter) key(name string) {
	if !c.first {
		c.text(",\n ")
	}
	c.first = false
	c.text(`"` + name + `":`)
}

func (c *columnWriter) column(name string, n int, at func(int) int64) {
	c.key(name)
	c.list(n, func(i int) {
		c.buf = strconv.AppendInt(c.buf[:0], at(i), 10)
		c.write(c.buf)
	})
}

func (c *columnWriter) unsigned(v uint64) {
	c.buf = strconv.AppendUint(c.buf[:0], v, 10)
	c.write(c.buf)
}

func (c *columnWriter) write(b []byte) {
	if _, err := c.w.Write(b); err != nil && c.err == nil {
		c.err = err
	}
}

func (c *columnWriter) list(n int, element func(int)) {
	c.text("[")
	for i := range n {
		if i > 0 {
			c.text(",")
		}
		element(i)
		if c.err != nil {
			return
		}
	}
	c.text("]")
}

// finite reports whether v is neither infinite nor NaN, which JSON cannot have.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// quotedJSON is s as a string in JSON.
func quotedJSON(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // cannot happen: every string can be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}
