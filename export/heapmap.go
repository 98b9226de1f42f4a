package export

import (
	"cmp"
	"embed"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// HeapMapOptions are the options of HeapMap and HeapSVG. The zero value works.
type HeapMapOptions struct {
	Title   string // empty: the program
	Version string // of clrsnap
	// Base is an earlier heap: colours show growth and shrinkage since; nil: there is none.
	Base *snapshot.Heap
	// Notes are sentences about the gaps of the heap.
	Notes []string
	Width int // of the picture of HeapSVG, in pixels; 0: 1200
}

// HeapMap writes a heap as an HTML page with a treemap: types in their namespaces, by bytes or by
// objects, and, with Dominators, a tree of dominators. The page loads and sends nothing; its content
// security policy enforces the isolation.
func HeapMap(w io.Writer, h *snapshot.Heap, o HeapMapOptions) error {
	style, script := pageFile("page.css")+heapFile("heap.css"), heapScript()
	title := cmp.Or(o.Title, heapTitle(h))
	return fillPage(w, heapFile("page.html"), map[string]func(io.Writer) error{
		"policy": pageText("default-src 'none'; img-src data:; style-src " + sourceHash(style) + "; script-src " +
			sourceHash(script) + "; base-uri 'none'; form-action 'none'"),
		"creator": pageText("clrsnap " + o.Version),
		"title":   pageText(title),
		"style":   pageSource(style),
		"script":  pageSource(script),
		// Encode escapes < and &.
		"data": func(w io.Writer) error { return json.NewEncoder(w).Encode(heapPageOf(h, &o)) },
	})
}

//go:embed heapmap
var heapFiles embed.FS

// heapScripts are the files of the page's script, in order: the files shared with flame graphs, and
// its own files.
var heapScripts = [2][]string{
	{"numbers.js", "dom.js", "colors.js"},
	{"data.js", "layout.js", "map.js", "panels.js", "page.js"},
}

func heapFile(name string) string {
	b, err := heapFiles.ReadFile("heapmap/" + name)
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(b)
}

func heapScript() string {
	var b strings.Builder
	b.WriteString("(() => {\n\"use strict\";\n")
	for _, name := range heapScripts[0] {
		b.WriteString(pageFile(name))
	}
	for _, name := range heapScripts[1] {
		b.WriteString(heapFile(name))
	}
	b.WriteString("})();\n")
	return b.String()
}

// heapPage is the page's data, as data.js reads it.
type heapPage struct {
	Facts []string       `json:"facts"`
	Notes []string       `json:"notes"`
	Who   string         `json:"who"` // the process, for commands; empty: a core dump
	Total heapTotal      `json:"total"`
	Base  bool           `json:"base"` // there is an earlier heap
	Ages  bool           `json:"ages"` // generations are known
	Types heapTypes      `json:"types"`
	Trees []heapPageTree `json:"trees"`
}

type heapTotal struct {
	Bytes  uint64 `json:"bytes"`
	Count  uint64 `json:"count"`
	Change int64  `json:"change"` // of bytes, since the earlier heap
}

// heapTypes are lists by type.
type heapTypes struct {
	Name        []string                       `json:"name"`
	Short       []string                       `json:"short"`
	Assembly    []string                       `json:"assembly"`
	Origin      []int                          `json:"origin"` // as originIndex
	Count       []uint64                       `json:"count"`
	Bytes       []uint64                       `json:"bytes"`
	Generations [][snapshot.Generations]uint64 `json:"generations"` // bytes
	Retained    []uint64                       `json:"retained,omitempty"`
	BytesChange []int64                        `json:"bytesChange,omitempty"`
}

// heapPageTree has lists by node.
type heapPageTree struct {
	ID     string   `json:"id"` // keepers or namespaces
	Parent []int32  `json:"parent"`
	Type   []int32  `json:"type"` // -1: none
	Label  []string `json:"label"`
	Count  []uint64 `json:"count"`
	Bytes  []uint64 `json:"bytes"`
	Own    []uint64 `json:"own"`
}

func heapPageOf(h *snapshot.Heap, o *HeapMapOptions) *heapPage {
	all := h.Objects()
	p := &heapPage{
		Facts: heapFacts(h), Notes: []string{}, Total: heapTotal{Bytes: all.Bytes, Count: all.Count},
		Base: o.Base != nil, Ages: hasGenerations(h),
	}
	for _, note := range o.Notes {
		p.Notes = append(p.Notes, display.Clean(note))
	}
	if h.Process.Core == nil {
		p.Who = strconv.Itoa(h.Process.PID)
	}
	if o.Base != nil {
		p.Facts = append(p.Facts, sinceText(h, o.Base))
		p.Total.Change = int64(all.Bytes) - int64(o.Base.Objects().Bytes)
	}
	if h.Dominators != nil {
		p.Trees = append(p.Trees, keeperTree(h).page(h, "keepers"))
	}
	names := namespaceTree(h)
	p.Trees = append(p.Trees, names.page(h, "namespaces"))
	p.Types = heapTypesOf(h, o.Base)
	return p
}

// sinceText says the changes since an earlier heap.
func sinceText(h, base *snapshot.Heap) string {
	text := signedBytes(int64(h.Objects().Bytes) - int64(base.Objects().Bytes))
	if d := h.CapturedAt.Sub(base.CapturedAt); d > 0 && !base.CapturedAt.IsZero() {
		text += " in " + d.Round(100*time.Millisecond).String()
	}
	return text
}

// heapTypesOf lists the shown types, followed by types that only an earlier heap had.
func heapTypesOf(h, base *snapshot.Heap) heapTypes {
	t := heapTypes{ // no list is null
		Name: []string{}, Short: []string{}, Assembly: []string{}, Origin: []int{}, Count: []uint64{},
		Bytes: []uint64{}, Generations: [][snapshot.Generations]uint64{},
	}
	var changes map[heapTypeKey]int64
	if base != nil {
		changes = heapChanges(h, base)
	}
	for _, x := range shownTypes(h) {
		t.add(&x)
		if h.HasRetained {
			t.Retained = append(t.Retained, x.Retained)
		}
		if base != nil {
			t.BytesChange = append(t.BytesChange, changes[heapTypeKey{x.Name, x.Assembly, x.Context}])
			delete(changes, heapTypeKey{x.Name, x.Assembly, x.Context})
		}
	}
	if base == nil {
		return t
	}
	for _, x := range shownTypes(base) {
		if change := changes[heapTypeKey{x.Name, x.Assembly, x.Context}]; change < 0 {
			t.add(&snapshot.HeapType{Name: x.Name, Assembly: x.Assembly, Context: x.Context})
			t.BytesChange = append(t.BytesChange, change)
			if h.HasRetained {
				t.Retained = append(t.Retained, 0)
			}
		}
	}
	return t
}

func (t *heapTypes) add(x *snapshot.HeapType) {
	t.Name = append(t.Name, display.Clean(x.Name))
	t.Short = append(t.Short, display.Clean(shortType(x.Name)))
	t.Assembly = append(t.Assembly, display.Clean(x.From()))
	t.Origin = append(t.Origin, typeOrigin(x))
	t.Count = append(t.Count, x.Count)
	t.Bytes = append(t.Bytes, x.Bytes)
	var ages [snapshot.Generations]uint64
	for g := range ages {
		ages[g] = x.Generations[g].Bytes
	}
	t.Generations = append(t.Generations, ages)
}

// page is the tree for the page.
func (t *heapTree) page(h *snapshot.Heap, id string) heapPageTree {
	out := heapPageTree{ID: id}
	shown := int32(len(shownTypes(h)))
	for i := range t.nodes {
		n := &t.nodes[i]
		typ, label := n.typ, ""
		if typ < 0 || typ >= shown {
			typ, label = -1, display.Clean(t.label(h, int32(i)))
		}
		out.Parent = append(out.Parent, n.parent)
		out.Type = append(out.Type, typ)
		out.Label = append(out.Label, label)
		out.Count = append(out.Count, n.total.Count)
		out.Bytes = append(out.Bytes, n.total.Bytes)
		out.Own = append(out.Own, n.own.Bytes)
	}
	return out
}
