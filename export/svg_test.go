package export_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap/export"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// drawn is a frame of a picture: its tooltip, and its place.
type drawn struct {
	Title string `xml:"title"`
	Text  string `xml:"text"`
	Rect  struct {
		X      float64 `xml:"x,attr"`
		Y      float64 `xml:"y,attr"`
		Width  float64 `xml:"width,attr"`
		Height float64 `xml:"height,attr"`
		Fill   string  `xml:"fill,attr"`
	} `xml:"rect"`
}

func (d *drawn) name() string { return strings.SplitN(d.Title, "\n", 2)[0] }

type svgDocument struct {
	Width  float64  `xml:"width,attr"`
	Height float64  `xml:"height,attr"`
	Frames []drawn  `xml:"g"`
	Texts  []string `xml:"text"`
}

func svg(t *testing.T, r *profile.Recording, o export.SVGOptions) (svgDocument, []byte) {
	t.Helper()
	var b bytes.Buffer
	if err := export.SVG(&b, r, o); err != nil {
		t.Fatal(err)
	}
	var d svgDocument
	dec := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	if err := dec.Decode(&d); err != nil {
		t.Fatalf("%v\n%.2000s", err, b.Bytes())
	}
	for err := error(nil); !errors.Is(err, io.EOF); { // nothing follows but white space
		var token xml.Token
		if token, err = dec.Token(); err == nil && len(bytes.TrimSpace(token.(xml.CharData))) > 0 {
			t.Fatalf("%v follows", token)
		}
	}
	if dir := *pictures; dir != "" {
		if err := os.WriteFile(filepath.Join(dir, t.Name()+".svg"), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return d, b.Bytes()
}

// TestSVG: widths are shares, callees lie inside their callers, on the right side.
func TestSVG(t *testing.T) {
	r := synthetic(20, 1)
	for _, o := range []export.SVGOptions{{Mode: profile.CPU}, {Mode: profile.Wall, Flame: true, Width: 900},
		{Mode: profile.Wall, Idle: true}} {
		d, _ := svg(t, r, o)
		sum := map[string]float64{}
		rows := map[float64]float64{} // where the last frame of each row ended
		for i, f := range d.Frames {
			sum[f.name()] += f.Rect.Width + 0.5
			if f.Rect.X < rows[f.Rect.Y]-0.6 {
				t.Fatalf("%s covers another frame", f.name())
			}
			rows[f.Rect.Y] = f.Rect.X + f.Rect.Width
			if below := f.Rect.Y > d.Frames[0].Rect.Y; i > 0 && below == o.Flame {
				t.Fatalf("%s is on the wrong side of the root", f.name())
			}
			if f.Rect.X+f.Rect.Width > d.Width || f.Rect.Y+f.Rect.Height > d.Height {
				t.Fatalf("%s is outside the picture", f.name())
			}
		}
		const rule = "Shop.Domain.Pricing.PriceEngine.Quote(Basket, ref Discounts)"
		selected := r.Select(profile.Selection{Modes: []profile.Mode{o.Mode}, Working: !o.Idle})
		want := figuresOf(selected)[rule+"|Shop.Domain"].Total / float64(selected.Weight(o.Mode))
		if got := sum[rule] / (d.Frames[0].Rect.Width + 0.5); math.Abs(got-want) > 0.002 || want == 0 {
			t.Errorf("%v: %s has %.3f of the width, want %.3f", o.Mode, rule, got, want)
		}
		leftOut := strings.Contains(strings.Join(d.Texts, "\n"), "Left out: idle ")
		if leftOut != (o.Mode == profile.Wall && !o.Idle) {
			t.Errorf("%+v: idle threads are said to be left out: %v", o, leftOut)
		}
		if all := strings.Join(d.Texts, "\n"); !strings.Contains(all, "your code") ||
			!strings.Contains(all, r.Notes[0]) || strings.Contains(all,
			"incomplete stacks") != (o.Mode == profile.CPU) {
			t.Errorf("what is written: %s", all)
		}
	}
}

// TestSVGSelection: a picture of a part says which part.
func TestSVGSelection(t *testing.T) {
	waiting := synthetic(2, 1).Select(profile.Selection{States: []profile.State{profile.Waiting}})
	d, _ := svg(t, waiting, export.SVGOptions{Mode: profile.Wall})
	if all := strings.Join(d.Texts, "\n"); !strings.Contains(all, "Wall-clock time, waiting, of") {
		t.Errorf("what is written: %s", all)
	}
}

// TestSVGHostile: names are shown as text. Narrow frames are left out, and the picture says so.
func TestSVGHostile(t *testing.T) {
	b := profile.NewBuilder(profile.Limits{})
	at := func(name string) int32 {
		return b.Location(profile.Location{
			Function: b.Function(profile.Function{
				Kind: snapshot.Managed, Method: name, Display: name, Short: name, Module: "<i>&amp;",
			}),
		})
	}
	names := []string{"</text><script>alert(1)</script>", "\x00\x1b[31m\u202e\xff", "]]>&<!--", "Box<a.b, c>.Run"}
	var leafFirst []int32
	for _, n := range names {
		leafFirst = append(leafFirst, at(n))
	}
	b.Thread(profile.RecordedThread{OSThreadID: 1})
	b.Add(profile.Sample{Weight: int64(time.Hour), Node: b.Stack(leafFirst)})
	b.Add(profile.Sample{Weight: int64(time.Millisecond), Node: b.Stack([]int32{at("tiny"), at("small")})})
	r := b.Recording()
	r.Notes = names
	d, raw := svg(t, r, export.SVGOptions{Title: names[0]})
	if len(d.Frames) != 1+len(names) || bytes.Contains(raw, []byte("<script")) {
		t.Errorf("%d frames:\n%s", len(d.Frames), raw)
	}
	if all := strings.Join(d.Texts, "\n"); !strings.Contains(all, "2 of 7 frames are narrower than 0.1 pixels") {
		t.Errorf("what is written: %s", all)
	}
	if d.Frames[len(names)].Text != names[0] {
		t.Errorf("%q", d.Frames[len(names)].Text)
	}
}

// TestSVGEmpty: a picture of nothing says so.
func TestSVGEmpty(t *testing.T) {
	d, _ := svg(t, profile.NewBuilder(profile.Limits{}).Recording(), export.SVGOptions{Mode: profile.Wall})
	if all := strings.Join(d.Texts, "\n"); !strings.Contains(all, "no samples of this mode") {
		t.Errorf("what is written: %s", all)
	}
}

// TestSVGPicture shows the picture in a browser. The browser must run no script for the picture.
func TestSVGPicture(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1220, 620, false)
	_, raw := svg(t, synthetic(20, 1), export.SVGOptions{})
	file := filepath.Join(t.TempDir(), "graph.svg")
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	b.call("Page.navigate", map[string]any{"url": "file://" + file}, nil)
	b.until(`document.querySelectorAll("g").length > 20`)
	var wide int
	b.eval(`[...document.querySelectorAll("g")].filter((g) => `+
		`{ const r = g.querySelector("rect").getBBox(), x = g.querySelector("text")?.getBBox(); `+
		`return x && x.x + x.width > r.x + r.width + 1; }).length`, &wide)
	if wide > 0 {
		t.Errorf("%d names are wider than their frames", wide)
	}
	b.picture("svg")
	b.check(t)
}
