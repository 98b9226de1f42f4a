package export

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// The beginning of a recording's file, and the version of the written format. docs/recording.md
// describes the format.
const (
	recordingFormat  = "clrsnap recording"
	recordingVersion = 2
	creatorName      = "clrsnap"
)

// WriteRecording writes a recording in clrsnap's own format, which keeps everything: one JSON document
// with its tables stored by column, compressed with gzip. ReadRecording returns an equal recording,
// except that invalid UTF-8 in names has become U+FFFD. WriteRecording returns an error if an index or
// a number of r is not valid.
func WriteRecording(w io.Writer, r *profile.Recording) error {
	if err := checkRecording(r); err != nil {
		return fmt.Errorf("the recording is not valid: %w", err)
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	c := columnWriter{Writer: jsonwriter.New(z)}
	writeDocument(&c, r)
	if err := c.Flush(); err != nil {
		return err
	}
	return z.Close()
}

func writeDocument(c *columnWriter, r *profile.Recording) {
	text := stringTable(r)
	c.Text(`{"format":`)
	c.Value(recordingFormat)
	c.Field("version", recordingVersion)
	c.Field("creator", creator(r))
	c.Field("start", r.Start.UTC().Format(time.RFC3339Nano))
	c.Field("duration", int64(r.Duration))
	c.Field("processes", processesOut(r.Processes))
	c.Field("threads", threadsOut(r.Threads))
	c.Text(",\n\"strings\":")
	c.List(len(text.list), func(i int) { c.Value(text.list[i]) })

	c.table("functions")
	f := r.Functions
	c.column("kind", len(f), func(i int) int64 { return int64(kindNumber(f[i].Kind)) })
	c.column("method", len(f), func(i int) int64 { return text.at(f[i].Method) })
	c.column("display", len(f), func(i int) int64 { return text.at(f[i].Display) })
	c.column("short", len(f), func(i int) int64 { return text.at(f[i].Short) })
	c.column("signature", len(f), func(i int) int64 { return text.at(f[i].Signature) })
	c.column("module", len(f), func(i int) int64 { return text.at(f[i].Module) })
	c.column("fate", len(f), func(i int) int64 { return text.at(f[i].Fate) })
	c.column("owner", len(f), func(i int) int64 { return int64(max(0, slices.Index(owners[:], f[i].Owner))) })
	c.end()

	c.table("locations")
	l := r.Locations
	c.column("function", len(l), func(i int) int64 { return int64(l[i].Function) })
	c.key("offset")
	c.List(len(l), func(i int) { c.Uint(l[i].Offset) })
	c.column("tier", len(l), func(i int) int64 { return text.at(l[i].Tier) })
	c.column("method", len(l), func(i int) int64 { return int64(l[i].Method) })
	c.column("il", len(l), func(i int) int64 { return int64(l[i].IL) })
	c.column("next", len(l), func(i int) int64 { return int64(l[i].Next) })
	c.flags("nearest", len(l), func(i int) bool { return l[i].Nearest })
	c.column("line", len(l), func(i int) int64 { return int64(l[i].Line) })
	c.flags("inlined", len(l), func(i int) bool { return l[i].Inlined })
	if len(r.Libraries) > 0 {
		c.column("library", len(l), func(i int) int64 { return int64(l[i].Library) })
		c.key("address")
		c.List(len(l), func(i int) { c.Uint(l[i].Address) })
	}
	c.end()
	writeSources(c, r, text)

	c.table("nodes")
	c.column("parent", len(r.Nodes), func(i int) int64 { return int64(r.Nodes[i].Parent) })
	c.column("location", len(r.Nodes), func(i int) int64 { return int64(r.Nodes[i].Location) })
	c.end()

	writeSamples(c, r.Samples)
	writeIdle(c, r)
	writeWaits(c, r)
	writeHolds(c, r.Holds)
	c.Field("modes", modesOut(r.Modes))
	c.Field("cost", costOut(r.Cost))
	c.Field("messages", messagesOut(r.Messages.Counts))
	c.Field("otherMessages", r.Messages.Others)
	c.Field("notes", append([]string{}, r.Notes...))
	c.Text("}\n")
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
	c.flags("incomplete", len(s), func(i int) bool { return s[i].Incomplete })
	c.end()
}

// writeIdle writes which samples are from idle threads, for readers that cannot tell. The list follows
// from the samples: documentReader skips it.
func writeIdle(c *columnWriter, r *profile.Recording) {
	idle := r.IdleSamples()
	if len(idle) == 0 {
		return
	}
	c.table("idle")
	for _, kind := range slices.Sorted(maps.Keys(idle)) {
		c.column(string(kind), len(idle[kind]), func(i int) int64 { return int64(idle[kind][i]) })
	}
	c.end()
}

// writeWaits writes the awaited objects of samples, for readers that cannot tell, without samples of
// idle threads. Like idle, the table follows from the samples.
func writeWaits(c *columnWriter, r *profile.Recording) {
	waits := map[string][]int32{}
	for what, samples := range r.WaitSamples() {
		if what.Kind != snapshot.WaitIdle {
			// Types of two assemblies can have one name. A target chooses the name, and the same name twice would
			// not be JSON.
			name := strings.ToValidUTF8(what.String(), "\uFFFD")
			waits[name] = append(waits[name], samples...)
		}
	}
	if len(waits) == 0 {
		return
	}
	c.table("waits")
	for _, name := range slices.Sorted(maps.Keys(waits)) {
		list := waits[name]
		slices.Sort(list)
		c.column(name, len(list), func(i int) int64 { return int64(list[i]) })
	}
	c.end()
}

// writeHolds writes the looks at holders of locks, if there are any.
func writeHolds(c *columnWriter, h []profile.Hold) {
	if len(h) == 0 {
		return
	}
	c.table("holds")
	c.column("at", len(h), func(i int) int64 { return int64(h[i].At) })
	c.column("waited", len(h), func(i int) int64 { return int64(h[i].Waited) })
	for _, column := range holdIndices {
		c.column(column.name, len(h), func(i int) int64 { return int64(*column.of(&h[i])) })
	}
	c.column("incomplete", len(h), func(i int) int64 {
		if h[i].Incomplete {
			return 1
		}
		return 0
	})
	c.end()
}

// holdIndex is a column of holds with indices.
type holdIndex struct {
	name string
	of   func(*profile.Hold) *int32
}

// holdIndices are the columns of holds with indices.
var holdIndices = [...]holdIndex{
	{"lock", func(h *profile.Hold) *int32 { return &h.Lock }},
	{"holder", func(h *profile.Hold) *int32 { return &h.Holder }},
	{"waiter", func(h *profile.Hold) *int32 { return &h.Waiter }},
	{"thread", func(h *profile.Hold) *int32 { return &h.Thread }},
	{"node", func(h *profile.Hold) *int32 { return &h.Node }},
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
		for _, s := range [...]string{f.Method, f.Display, f.Short, f.Signature, f.Module, f.Fate} {
			t.at(s)
		}
	}
	for i := range r.Locations {
		t.at(r.Locations[i].Tier)
	}
	for i := range r.Sites {
		t.at(r.Sites[i].Callee)
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
var kinds = [...]snapshot.Kind{snapshot.Managed, snapshot.Native, snapshot.Kernel, snapshot.Event, snapshot.Async}

// owners are the values of profile.Function.Owner by their numbers in the file.
var owners = [...]snapshot.Origin{"", snapshot.OfUser, snapshot.OfPackage, snapshot.OfFramework}

// kindNumber returns the index of a kind in kinds, or -1.
func kindNumber(k snapshot.Kind) int {
	for i := range kinds {
		if kinds[i] == k {
			return i
		}
	}
	return -1
}

// columnWriter writes tables by column.
type columnWriter struct {
	*jsonwriter.Writer
	first bool // the next column is its table's first
}

// table begins an object of columns.
func (c *columnWriter) table(name string) {
	c.Text(",\n")
	c.Key(name)
	c.Text("{")
	c.first = true
}

func (c *columnWriter) end() { c.Text("}") }

func (c *columnWriter) key(name string) {
	if !c.first {
		c.Text(",\n ")
	}
	c.first = false
	c.Key(name)
}

func (c *columnWriter) column(name string, n int, at func(int) int64) {
	c.key(name)
	c.List(n, func(i int) { c.Int(at(i)) })
}

// flags writes a column of its own length: the indices of the rows with a property.
func (c *columnWriter) flags(name string, n int, has func(int) bool) {
	var rows []int
	for i := range n {
		if has(i) {
			rows = append(rows, i)
		}
	}
	c.column(name, len(rows), func(i int) int64 { return int64(rows[i]) })
}

// finite reports whether v is neither infinite nor NaN. JSON cannot have either.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
