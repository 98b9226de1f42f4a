package export

import (
	"fmt"
	"hash/fnv"
	"math"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// svgPaint is a range of colours, as in flamegraph/colors.js.
type svgPaint struct {
	hue, span, saturation, lightness float64
	ink                              string
}

// svgLegend is by origin: see originIndex.
var svgLegend = [...]struct {
	paint svgPaint
	text  string
}{
	{svgPaint{24, 22, 92, 64, "#221503"}, "your code"},
	{svgPaint{54, 12, 82, 72, "#262003"}, "packages"},
	{svgPaint{202, 24, 68, 76, "#0a1c30"}, "framework"},
	{svgPaint{140, 30, 16, 74, "#13211a"}, "native"},
	{svgPaint{335, 20, 17, 60, "#1d0c12"}, "kernel"},
	{svgPaint{180, 24, 62, 26, "#effcfb"}, "events"},
}

func originIndex(f *profile.Function) int {
	switch f.Origin() {
	case snapshot.OfUser:
		return 0
	case snapshot.OfPackage:
		return 1
	case snapshot.OfFramework:
		return 2
	case snapshot.OfNative:
		return 3
	case snapshot.OfKernel:
		return 4
	}
	return 5
}

// fill returns a colour of the range. at chooses the hue and light the lightness, from 0 to 1.
func (p svgPaint) fill(at, light float64) string {
	return rgb(p.hue+(at-0.2)*p.span, p.saturation/100, (p.lightness+(light-0.5)*11)/100)
}

// rgb returns a colour as #rrggbb, a form known to every SVG viewer. The hue is in degrees; the
// formula is from CSS Color 4, section 7.1.
func rgb(hue, saturation, lightness float64) string {
	a := saturation * min(lightness, 1-lightness)
	channel := func(n float64) uint8 {
		k := math.Mod(n+hue/30+12, 12)
		return uint8(math.Round(255 * (lightness - a*max(-1, min(k-3, 9-k, 1)))))
	}
	return fmt.Sprintf("#%02x%02x%02x", channel(0), channel(8), channel(4))
}

// svgColor returns the colours of a frame and its text. The root is neutral.
func svgColor(f *treeFrame, root bool) (fill, ink string) {
	switch {
	case f.function != nil:
		p := svgLegend[originIndex(f.function)].paint
		return p.fill(spread(f.function.Module), spread(f.function.Display)), p.ink
	case !root: // incomplete stacks
		return "#f3e9c8", "#3a2c00"
	}
	return "#dfe3e9", "#16181d"
}

// spread is a hash that maps a text to a number from 0 to 1, evenly.
func spread(s string) float64 {
	h := fnv.New32a()
	h.Write([]byte(s))
	v := h.Sum32()
	v = (v ^ v>>15) * 0x2c1b3c6d
	return float64(v^v>>12) / (1 << 32)
}
