package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"clrsnap/internal/jsonwriter"
	"clrsnap/snapshot"
)

// HeapJSON writes the contents of a heap as one JSON document and a newline. The schema is stable and described in
// docs/json.md. Of the options, Color, Width and Full have no effect.
func HeapJSON(w io.Writer, h *snapshot.Heap, o HeapOptions) error {
	c := jsonwriter.New(w)
	all := h.Objects()
	c.Open(jsonHeap{
		Process: jsonProcess{
			PID: h.Process.PID, Command: h.Process.Command,
			Runtime: jsonRuntimeOf(&h.Process.Runtime), Core: jsonCoreOf(h.Process.Core),
		},
		CapturedAt: h.CapturedAt.UTC().Format(time.RFC3339Nano), Milliseconds: float64(h.Duration.Microseconds()) / 1e3,
		TotalBytes: all.Bytes, TotalCount: all.Count, FreeBytes: h.Free(), ConsistentShare: h.ConsistentShare,
		GraphCut: h.GraphCut, RootsMoved: h.RootsMoved, RootsLack: h.RootsLack, Collecting: h.Collecting,
		Partial: h.Partial, Memory: jsonMemoryOf(h.Memory), Stop: jsonHeapStopOf(h.Stop),
	})
	if len(h.Nearest) > 0 {
		c.Field("nearest", h.Nearest)
	}
	n := h.Heaps()
	c.Text(",\n\"heaps\":")
	c.List(n, func(i int) { c.Value(jsonHeapPartsOf(h, i)) })
	types := firstOf(h.Types, o.Rows)
	c.Text(",\n\"types\":")
	c.List(len(types), func(i int) { c.Text("\n"); c.Value(jsonHeapTypeOf(&types[i], h.HasRetained)) })
	if h.HasInstances || h.Matching.Count > 0 {
		c.Field("matchingCount", h.Matching.Count)
		c.Field("matchingBytes", h.Matching.Bytes)
		some := firstOf(h.Instances, o.Rows)
		c.Text(",\n\"instances\":")
		c.List(len(some), func(i int) {
			x := &some[i]
			c.Value(jsonInstance{hex(x.Address), x.Type, x.Of, x.Bytes, x.Generation.String()})
		})
	}
	if h.HasPaths || h.Kept.Count > 0 {
		heapPathsJSON(c, h, firstOf(h.Paths, o.Rows))
	}
	if len(h.Strings) > 0 {
		some := firstOf(h.Strings, o.Rows)
		c.Text(",\n\"strings\":")
		c.List(len(some), func(i int) {
			x := &some[i]
			c.Value(jsonString{x.Text, x.Cut, x.Count, x.Bytes})
		})
	}
	if o.Base != nil {
		changes := firstOf(h.ChangeFrom(o.Base), o.Rows)
		c.Text(",\n\"changes\":")
		c.List(len(changes), func(i int) {
			x := &changes[i]
			c.Value(jsonHeapChange{x.Name, x.Assembly, x.Context, x.Count, x.Bytes, x.Now.Count, x.Now.Bytes})
		})
	}
	c.Text("}\n")
	return c.Flush()
}

// heapPathsJSON writes the paths that keep objects.
func heapPathsJSON(c *jsonwriter.Writer, h *snapshot.Heap, paths []snapshot.HeapPath) {
	c.Field("keptCount", h.Kept.Count)
	c.Field("keptBytes", h.Kept.Bytes)
	if h.OtherPaths.Count > 0 {
		c.Field("otherCount", h.OtherPaths.Count)
		c.Field("otherBytes", h.OtherPaths.Bytes)
	}
	c.Text(",\n\"paths\":")
	c.List(len(paths), func(i int) {
		x := &paths[i]
		out := jsonHeapPath{
			Root: x.Root, Static: x.Static, Handle: x.Handle, Method: x.Method,
			Conservative: x.Conservative(), Count: x.Objects.Count, Bytes: x.Objects.Bytes, Sampled: x.Sampled,
		}
		if x.Thread != nil {
			out.Thread = jsonOwnerOf(x.Thread)
		}
		out.Steps = make([]jsonHeapStep, len(x.Steps))
		for j, s := range x.Steps {
			out.Steps[j] = jsonHeapStep(s)
		}
		c.Value(out)
	})
}

type jsonHeapPath struct {
	Root         snapshot.HeapRoot   `json:"root"`
	Static       string              `json:"static,omitempty"`
	Handle       snapshot.HandleKind `json:"handle,omitempty"`
	Thread       *jsonOwner          `json:"thread,omitempty"`
	Method       string              `json:"method,omitempty"`
	Conservative bool                `json:"conservative,omitempty"`
	Count        uint64              `json:"count"`
	Bytes        uint64              `json:"bytes"`
	Sampled      bool                `json:"sampled,omitempty"`
	Steps        []jsonHeapStep      `json:"steps"`
}

type jsonHeapStep struct {
	Type      string `json:"type"`
	Of        string `json:"of,omitempty"`
	Times     int    `json:"times"`
	Field     string `json:"field,omitempty"`
	Dependent bool   `json:"dependent,omitempty"`
	ByType    bool   `json:"byType,omitempty"`
	Static    string `json:"static,omitempty"`
	Gap       bool   `json:"gap,omitempty"`
}

type jsonHeap struct {
	Process         jsonProcess `json:"process"`
	CapturedAt      string      `json:"capturedAt"`
	Milliseconds    float64     `json:"durationMilliseconds"`
	TotalBytes      uint64      `json:"totalBytes"`
	TotalCount      uint64      `json:"totalCount"`
	FreeBytes       uint64      `json:"freeBytes"`
	ConsistentShare float64     `json:"consistentShare"`
	GraphCut        bool        `json:"graphCut,omitempty"`
	RootsMoved      bool        `json:"rootsMoved,omitempty"`
	RootsLack       []string    `json:"rootsLack,omitempty"`
	Collecting      bool        `json:"collecting,omitempty"`
	Partial         bool        `json:"partial,omitempty"`

	Memory *jsonMemory   `json:"memory,omitempty"`
	Stop   *jsonHeapStop `json:"stop,omitempty"`
}

type jsonHeapType struct {
	Type       string             `json:"type"`
	Assembly   string             `json:"assembly,omitempty"`
	Context    string             `json:"loadContext,omitempty"`
	Count      uint64             `json:"count"`
	Bytes      uint64             `json:"bytes"`
	Generation map[string]float64 `json:"generation"`
	Retained   *uint64            `json:"retainedBytes,omitempty"`
}

type jsonHeapParts struct {
	Heap        int            `json:"heap"`
	Generations []jsonHeapPart `json:"generations"`
}

type jsonHeapPart struct {
	Generation      string `json:"generation"`
	Regions         int    `json:"regions"`
	Size            uint64 `json:"sizeBytes"`
	Reserved        uint64 `json:"reservedBytes"`
	Count           uint64 `json:"count"`
	Bytes           uint64 `json:"bytes"`
	FreeCount       uint64 `json:"freeCount"`
	FreeBytes       uint64 `json:"freeBytes"`
	UnusedBytes     uint64 `json:"unusedBytes"`
	ConsistentBytes uint64 `json:"consistentBytes"`
}

type jsonInstance struct {
	Address    string `json:"address"`
	Type       string `json:"type"`
	Of         string `json:"of,omitempty"`
	Bytes      uint64 `json:"bytes"`
	Generation string `json:"generation"`
}

type jsonString struct {
	Text  string `json:"text"`
	Cut   bool   `json:"cut,omitempty"`
	Count uint64 `json:"count"`
	Bytes uint64 `json:"bytes"`
}

type jsonHeapChange struct {
	Type     string `json:"type"`
	Assembly string `json:"assembly,omitempty"`
	Context  string `json:"loadContext,omitempty"`
	Count    int64  `json:"countChange"`
	Bytes    int64  `json:"bytesChange"`
	NowCount uint64 `json:"count"`
	NowBytes uint64 `json:"bytes"`
}

func jsonHeapTypeOf(t *snapshot.HeapType, retained bool) jsonHeapType {
	out := jsonHeapType{
		Type: t.Name, Assembly: t.Assembly, Context: t.Context, Count: t.Count, Bytes: t.Bytes,
		Generation: map[string]float64{},
	}
	if retained {
		out.Retained = &t.Retained
	}
	for g, a := range t.Generations {
		if a.Bytes > 0 {
			out.Generation[snapshot.Generation(g).String()] = float64(a.Bytes) / float64(t.Bytes)
		}
	}
	return out
}

func jsonHeapPartsOf(h *snapshot.Heap, number int) jsonHeapParts {
	out := jsonHeapParts{Heap: number, Generations: []jsonHeapPart{}}
	for i := range h.Parts {
		p := &h.Parts[i]
		if p.Heap != number {
			continue
		}
		out.Generations = append(out.Generations, jsonHeapPart{
			Generation: p.Generation.String(), Regions: p.Regions, Size: p.Size, Reserved: p.Reserved,
			Count: p.Objects.Count, Bytes: p.Objects.Bytes, FreeCount: p.Free.Count, FreeBytes: p.Free.Bytes,
			UnusedBytes: p.Unused, ConsistentBytes: p.ConsistentBytes,
		})
	}
	return out
}

// ErrNotHeap: a file is not the output of HeapJSON.
var ErrNotHeap = errors.New("not the JSON of clrsnap heap")

// Bounds of an input file: its bytes, its types, and each number.
const (
	maxHeapJSON  = 64 << 20
	maxHeapTypes = 1 << 18
	maxAmount    = 1 << 53
)

// ReadHeapJSON reads the output of HeapJSON, from any source: the types, and the time. The file must have all types.
func ReadHeapJSON(r io.Reader) (*snapshot.Heap, error) {
	var in struct {
		CapturedAt time.Time
		TotalBytes *uint64
		TotalCount uint64
		Collecting bool
		Partial    bool
		Types      jsonTypesRead
	}
	d := json.NewDecoder(io.LimitReader(r, maxHeapJSON))
	if err := d.Decode(&in); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHeap, err)
	}
	if in.TotalBytes == nil || *in.TotalBytes > maxAmount {
		return nil, fmt.Errorf("%w: %d types and no total", ErrNotHeap, len(in.Types))
	}
	if in.Partial {
		return nil, fmt.Errorf("%w as a whole, because the look was interrupted: write the file once more", ErrNotHeap)
	}
	h := &snapshot.Heap{CapturedAt: in.CapturedAt, Collecting: in.Collecting, Parts: []snapshot.HeapPart{{}}}
	h.Parts[0].Objects = snapshot.HeapAmount{Count: in.TotalCount, Bytes: *in.TotalBytes}
	listed := uint64(0)
	for _, t := range in.Types {
		if t.Count > maxAmount || t.Bytes > maxAmount {
			return nil, fmt.Errorf("%w: %d objects", ErrNotHeap, t.Count)
		}
		listed += t.Count
		h.Types = append(h.Types, snapshot.HeapType{
			Name: t.Type, Assembly: t.Assembly, Context: t.Context,
			HeapAmount: snapshot.HeapAmount{Count: t.Count, Bytes: t.Bytes},
		})
	}
	if listed != in.TotalCount {
		return nil, fmt.Errorf("%w with all types: write it without --limit", ErrNotHeap)
	}
	return h, nil
}

// jsonTypesRead are the types of an input file, in bounded number.
type jsonTypesRead []jsonTypeRead

type jsonTypeRead struct {
	Type, Assembly string
	Context        string `json:"loadContext"`
	Count, Bytes   uint64
}

func (l *jsonTypesRead) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("the types are no list")
	}
	for d.More() {
		if len(*l) >= maxHeapTypes {
			return fmt.Errorf("more than %d types", maxHeapTypes)
		}
		var t jsonTypeRead
		if err := d.Decode(&t); err != nil {
			return err
		}
		*l = append(*l, t)
	}
	return nil
}
