package export_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap/export"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// hostileType is a name that would be a script if it were ever more than text.
const hostileType = `Evil</script><script>document.title="owned"</script><img src=x onerror='document.title="owned"'>` +
	"\x1b[31m\u202e{{script}}"

// someHeap is a heap with so many types, mostly small types.
func someHeap(types int) *snapshot.Heap {
	h := &snapshot.Heap{
		Process: snapshot.Process{PID: 4242, Command: "dotnet /srv/Shop.dll",
			Runtime: snapshot.Runtime{Version: "10.0.14"}},
		CapturedAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), ConsistentShare: 1, Parts: []snapshot.HeapPart{{}},
	}
	r := rand.New(rand.NewSource(1))
	spaces := []struct{ name, assembly string }{
		{"Shop", "Shop"}, {"Shop.Orders", "Shop"}, {"Shop.Orders.Rules", "Shop"}, {"System", "System.Private.CoreLib"},
		{"System.Collections.Generic", "System.Private.CoreLib"}, {"System.Threading.Tasks", "System.Private.CoreLib"},
		{"Microsoft.Extensions.DependencyInjection", "Microsoft.Extensions.DependencyInjection"},
		{"Microsoft.AspNetCore.Http", "Microsoft.AspNetCore.Http"}, {"Npgsql.Internal", "Npgsql"}, {"", "Legacy"},
	}
	for i := range types {
		s := spaces[i%len(spaces)]
		name := fmt.Sprintf("Type%d<string, %s.Of>", i, "Other")
		if s.name != "" {
			name = s.name + "." + name
		}
		if i == 1 {
			name = "byte[]"
		}
		n := uint64(1 + r.Intn(1000))
		a := snapshot.HeapAmount{Count: n, Bytes: n * uint64(8+r.Intn(100)) * (1 + 40_000/uint64(i*i+1))}
		t := snapshot.HeapType{Name: name, Assembly: s.assembly, HeapAmount: a}
		if s.name == "Npgsql.Internal" {
			t.Owner = snapshot.OfPackage
		}
		old := r.Float64()
		t.Generations[snapshot.Gen2] = snapshot.HeapAmount{Count: n, Bytes: uint64(old * float64(a.Bytes))}
		t.Generations[snapshot.Gen0].Bytes = a.Bytes - t.Generations[snapshot.Gen2].Bytes
		h.Types = append(h.Types, t)
		h.Parts[0].Objects.Add(a)
	}
	return h
}

// withDominators adds dominators: a static field, a chain, and the rest.
func withDominators(h *snapshot.Heap) *snapshot.Heap {
	all := h.Objects().Bytes
	h.HasRetained = true
	h.Dominators = []snapshot.HeapDominator{
		{Type: -1, Retained: all},
		{Parent: 0, Type: -1, Root: snapshot.RootStatic, Static: "Shop.Cache.all", Retained: all / 2},
		{Parent: 1, Type: 4, Objects: snapshot.HeapAmount{Count: 1, Bytes: 80}, Retained: all / 2},
		{Parent: 2, Type: 0, Objects: snapshot.HeapAmount{Count: 10, Bytes: all / 4}, Retained: all/2 - 100},
		{Parent: 3, Type: 1, Objects: snapshot.HeapAmount{Count: 100, Bytes: all / 8}, Retained: all / 8},
		{Parent: 0, Type: 3, Objects: snapshot.HeapAmount{Count: 7, Bytes: all / 5}, Retained: all / 4},
	}
	return h
}

func heapMap(t testing.TB, h *snapshot.Heap, o export.HeapMapOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := export.HeapMap(&b, h, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestHeapMapData: the page has all types, in their namespaces, and no markup from type names.
func TestHeapMapData(t *testing.T) {
	h := someHeap(30)
	h.Types[2].Name = hostileType
	page := string(heapMap(t, h, export.HeapMapOptions{Title: hostileType, Notes: []string{hostileType}}))
	for _, bad := range []string{"<img", "owned\"</script>", "\x1b", "\u202e"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if n := strings.Count(page, "</script>"); n != 2 {
		t.Errorf("%d scripts end", n)
	}
	_, rest, _ := strings.Cut(page, `id="data">`)
	text, _, _ := strings.Cut(rest, "</script>")
	var data struct {
		Who   string
		Types struct {
			Name  []string
			Bytes []uint64
		}
		Trees []struct {
			ID           string
			Parent, Type []int
			Label        []string
			Bytes        []uint64
		}
	}
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatal(err)
	}
	if data.Who != "4242" || len(data.Types.Name) != 30 || len(data.Trees) != 1 {
		t.Fatalf("%+v", data)
	}
	tree := data.Trees[0]
	path := func(i int) string {
		var parts []string
		for ; i > 0; i = tree.Parent[i] {
			parts = append([]string{tree.Label[i]}, parts...)
		}
		return strings.Join(parts, "/")
	}
	for i, typ := range tree.Type {
		if typ < 0 {
			continue
		}
		name := data.Types.Name[typ]
		want := map[string]string{
			"byte[]": "System/",
			"Shop.Orders.Rules.Type12<string, Other.Of>":        "Shop/Orders/Rules/",
			"Microsoft.AspNetCore.Http.Type7<string, Other.Of>": "Microsoft/AspNetCore.Http/",
			"Type9<string, Other.Of>":                           ""}
		if got, ok := want[name]; ok && path(i) != got {
			t.Errorf("%s is in %q, not in %q", name, path(i), got)
		}
	}
	if tree.Bytes[0] != h.Objects().Bytes {
		t.Errorf("all is %d bytes, not %d", tree.Bytes[0], h.Objects().Bytes)
	}
}

// TestHeapMapNames: areas have short names. The box of an async method's state is named after the method.
func TestHeapMapNames(t *testing.T) {
	const box = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<byte[]>+AsyncStateMachineBox<"
	h := someHeap(4)
	want := map[string]string{
		box + "Shop.HttpServer.HandleAsync>":           "HttpServer.HandleAsync{async}",
		box + "Main>":                                  "Main{async}",
		"Shop.Cache<string, Shop.Item[]>+Entry":        "Cache<string, Item[]>+Entry",
		box + "Shop.Cache<System.Int32>.Load<Shop.A>>": "Cache<System.Int32>.Load<Shop.A>{async}",
	}
	i := 0
	for name := range want {
		h.Types[i].Name = name
		i++
	}
	page := string(heapMap(t, h, export.HeapMapOptions{}))
	for name, short := range want {
		text, _ := json.Marshal(short)
		if !strings.Contains(page, string(text)) {
			t.Errorf("%s has not become %s", name, text)
		}
	}
}

// heapArea is an area of a picture.
type heapArea struct {
	Title string `xml:"title"`
	Rect  struct {
		X      float64 `xml:"x,attr"`
		Y      float64 `xml:"y,attr"`
		Width  float64 `xml:"width,attr"`
		Height float64 `xml:"height,attr"`
	} `xml:"rect"`
}

// TestHeapSVG: the area of a type is in proportion to its bytes, as far as titles and gaps allow, and
// all areas are inside the picture.
func TestHeapSVG(t *testing.T) {
	for name, h := range map[string]*snapshot.Heap{
		"10": someHeap(10), "5000": someHeap(5000), "keepers": withDominators(someHeap(100)), "none": someHeap(0),
	} {
		h.Process.Command = "dotnet <b>" + hostileType
		var b bytes.Buffer
		if err := export.HeapSVG(&b, h, export.HeapMapOptions{Notes: []string{"<note>"}}); err != nil {
			t.Fatal(err)
		}
		if *pictures != "" {
			if err := os.WriteFile(filepath.Join(*pictures, "heap-"+name+".svg"), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(name, err)
			}
		}
		var doc struct {
			Areas []heapArea `xml:"g"`
		}
		if err := xml.Unmarshal(b.Bytes(), &doc); err != nil {
			t.Fatal(name, err)
		}
		checkAreas(t, name, h, doc.Areas)
	}
}

func checkAreas(t *testing.T, name string, h *snapshot.Heap, areas []heapArea) {
	t.Helper()
	byName := map[string]float64{}
	for _, a := range areas {
		if a.Rect.X < 0 || a.Rect.Y < 0 || a.Rect.X+a.Rect.Width > 1200 || a.Rect.Y+a.Rect.Height > 800 {
			t.Errorf("%s: outside: %+v", name, a)
		}
		_, second, _ := strings.Cut(a.Title, "\n")
		name, _, _ := strings.Cut(second, "\n")
		byName[name] = a.Rect.Width * a.Rect.Height
	}
	if len(h.Types) == 0 || h.Dominators != nil {
		if want := map[string]int{"keepers": 3, "none": 0}[name]; len(areas) != want {
			t.Errorf("%s: %d areas, not %d", name, len(areas), want)
		}
		return
	}
	all := float64(h.Objects().Bytes)
	for i := range h.Types {
		share := float64(h.Types[i].Bytes) / all
		if area := byName[h.Types[i].Name] / (1180 * 720); share > 0.02 && (area < 0.75*share || area > 1.02*share) {
			t.Errorf("%s: %s has %.3f of the bytes and %.3f of the area", name, h.Types[i].Name, share, area)
		}
	}
}

// heapState is the state of the page.
type heapState struct {
	View, Size, Paint, Theme string
	Focus, Selected          *heapNode
	Found                    int
	Nodes, Cells             int
	LayoutTime, DrawTime     float64
	Width, Height            float64
}

type heapNode struct {
	Index, Type, Parent int
	Name, Label         string
	Bytes, Change       float64
}

func (b *browser) heap() (s heapState) {
	b.tb.Helper()
	b.eval("clrsnap.state()", &s)
	return s
}

func (b *browser) heapNode(name string) heapNode {
	b.tb.Helper()
	var all []heapNode
	b.eval("clrsnap.nodes()", &all)
	for _, n := range all {
		if n.Name == name {
			return n
		}
	}
	b.tb.Fatalf("no area %q", name)
	return heapNode{}
}

// clickHeap clicks on the top left corner of an area.
func (b *browser) clickHeap(i int) {
	b.tb.Helper()
	var at *struct{ X, Y, W, H float64 }
	b.eval(fmt.Sprintf("clrsnap.place(%d)", i), &at)
	if at == nil {
		b.tb.Fatalf("area %d is not there", i)
	}
	b.click(at.X+4, at.Y+4)
}

// TestHeapMap goes through the page with mouse and keys, as a person does.
func TestHeapMap(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	small := someHeap(10)
	small.Types[2].Name = hostileType
	b.loadFolded(heapMap(t, small, export.HeapMapOptions{Notes: []string{hostileType}}))
	b.picture("heap-10")
	if s := b.heap(); s.View != "namespaces" || s.Cells < 10 || s.Paint != "origin" {
		t.Errorf("%+v", s)
	}

	h := someHeap(5000)
	b.loadFolded(heapMap(t, h, export.HeapMapOptions{}))
	b.picture("heap-5000")
	shop := b.heapNode("Shop")
	b.clickHeap(shop.Index)
	if s := b.heap(); s.Focus.Name != "Shop" || s.Selected.Name != "Shop" {
		t.Errorf("a click on a title zooms to %+v and selects %+v", s.Focus, s.Selected)
	}
	b.picture("heap-zoomed")
	b.press("ArrowDown")
	first := b.heap().Selected
	if first.Parent != shop.Index {
		t.Errorf("down goes to %+v", first)
	}
	b.press("ArrowRight")
	if s := b.heap().Selected; s.Parent != shop.Index || s.Bytes > first.Bytes || s.Index == first.Index {
		t.Errorf("right goes to %+v, after %+v", s, first)
	}
	b.press("Escape")
	b.press("Escape")
	if s := b.heap(); s.Focus.Index != 0 || s.Selected != nil {
		t.Errorf("Escape leaves %+v and %+v", s.Focus, s.Selected)
	}
	b.eval(`(() => {
		const s = document.getElementById("search");
		s.value = "/Type4990</";
		s.dispatchEvent(new Event("input"));
	})()`, nil)
	b.eval(`document.getElementById("next").click()`, nil)
	if s := b.heap(); s.Found != 1 || !strings.Contains(s.Selected.Name, "Type4990<") {
		t.Errorf("found %d, selected %+v", s.Found, s.Selected)
	}
	var visible bool
	b.eval(`(() => {
		const p = clrsnap.place(clrsnap.state().selected.index);
		return p && p.w >= 3 && p.h >= 3;
	})()`, &visible)
	if !visible {
		t.Error("what was found cannot be seen")
	}
	if rows := b.text("#table tbody"); strings.Count(rows, "Type4990<") != 1 || strings.Contains(rows, "Type3<") {
		t.Errorf("the table has %.200q", rows)
	}
	for _, p := range []string{"age", "origin"} {
		b.eval(fmt.Sprintf("clrsnap.choose({paint: %q})", p), nil)
	}
	b.eval(`clrsnap.choose({size: "objects"})`, nil)
	b.media("prefers-color-scheme=dark")
	b.until(`clrsnap.state().theme === "dark"`)
	b.picture("heap-dark")
	b.media("prefers-color-scheme=light")
	s := b.heap()
	t.Logf("%d nodes: layout %.0f ms, drawing %.0f ms", s.Nodes, s.LayoutTime, s.DrawTime)
	b.check(t)
	var title string
	if b.eval("document.title", &title); strings.Contains(title, "owned") {
		t.Error("a name has become a script")
	}
	checkHeapGrowth(t, b)
}

// checkHeapGrowth: with an earlier heap the page shows growth; with Dominators, dominators.
func checkHeapGrowth(t *testing.T, b *browser) {
	t.Helper()
	base, h := someHeap(200), withDominators(someHeap(200))
	base.Types = append(base.Types, snapshot.HeapType{Name: "Shop.Gone", Assembly: "Shop",
		HeapAmount: snapshot.HeapAmount{Count: 1, Bytes: 1 << 20}})
	base.Parts[0].Objects.Add(snapshot.HeapAmount{Count: 1, Bytes: 1 << 20})
	h.Types[10].Bytes += 5 << 20
	h.Parts[0].Objects.Bytes += 5 << 20
	b.loadFolded(heapMap(t, h, export.HeapMapOptions{Base: base}))
	if s := b.heap(); s.View != "keepers" || s.Paint != "growth" {
		t.Errorf("%+v", s)
	}
	var cells []struct {
		Name  string
		Part  int
		Chain []int
		W, H  float64
	}
	b.eval("clrsnap.cells()", &cells)
	if len(cells) < 5 || len(cells[0].Chain) != 3 {
		t.Errorf("%+v", cells)
	}
	b.picture("heap-keepers")
	b.eval(`clrsnap.choose({view: "namespaces", size: "growth"})`, nil)
	b.picture("heap-growth")
	if n := b.heapNode("everything"); n.Change != 4<<20 {
		t.Errorf("%+v", n)
	}
	rows := b.text("#table tbody")
	facts := b.text("#facts")
	if first, _, _ := strings.Cut(rows, "Type10<"); !strings.Contains(first, "+5.00") ||
		!strings.Contains(facts, "+4.00") {
		t.Errorf("the table begins with %.200q, facts %q", rows, facts)
	}
	b.eval(`[...document.querySelectorAll("th button")].find((b) => b.textContent.startsWith("Change")).click()`, nil)
	if rows := b.text("#table tbody"); !strings.Contains(rows[:min(len(rows), 60)], "Gone") {
		t.Errorf("the table, the other way round, begins with %.200q", rows)
	}
	b.window(390, 844, true)
	b.picture("heap-phone")
	b.loadFolded(heapMap(t, base, export.HeapMapOptions{Base: base})) // nothing has grown
	b.eval(`clrsnap.choose({size: "growth"})`, nil)
	if s := b.heap(); s.Cells != 0 {
		t.Errorf("%+v", s)
	}
	b.loadFolded(heapMap(t, someHeap(0), export.HeapMapOptions{}))
	b.check(t)
}
