package export

import (
	"fmt"
	"io"
	"strings"

	"clrsnap/profile"
)

// Format is a format that a recording can be written in, by the name that
// --format has for it.
type Format string

// The formats.
const (
	FormatHTML       Format = "html"
	FormatRecording  Format = "clrsnap"
	FormatPprof      Format = "pprof"
	FormatSpeedscope Format = "speedscope"
	FormatFolded     Format = "folded"
	FormatTrace      Format = "trace"
	FormatSVG        Format = "svg"
)

// formats are all formats, what their files' names end with, the usual ending
// first, and what they are.
var formats = []struct {
	format      Format
	endings     []string
	description string
	encode      func(io.Writer, *profile.Recording, *Options) error
	oneMode     bool
}{
	{FormatHTML, []string{".html", ".htm"}, "interactive flame graph, one page for any browser, with all of the recording inside",
		func(w io.Writer, r *profile.Recording, o *Options) error {
			return FlameGraph(w, r, FlameOptions{Title: o.Title, Base: o.Base})
		}, false},
	{FormatRecording, []string{".clrsnap"}, "everything that was recorded, to be shown or converted later",
		func(w io.Writer, r *profile.Recording, _ *Options) error { return WriteRecording(w, r) }, false},
	{FormatPprof, []string{".pb.gz", ".pprof"}, "for go tool pprof, Pyroscope, Parca",
		func(w io.Writer, r *profile.Recording, _ *Options) error { return Pprof(w, r) }, false},
	{FormatSpeedscope, []string{".speedscope.json", ".speedscope"}, "for speedscope, a profile for each thread and mode",
		func(w io.Writer, r *profile.Recording, _ *Options) error { return Speedscope(w, r) }, false},
	{FormatFolded, []string{".folded", ".collapsed"}, "text, a line for each different stack with its weight",
		func(w io.Writer, r *profile.Recording, o *Options) error {
			return Folded(w, r, FoldedOptions{Mode: o.mode(r), ByThread: o.ByThread})
		}, true},
	{FormatTrace, []string{".trace.json"}, "trace events for Perfetto, a time line for each thread",
		func(w io.Writer, r *profile.Recording, _ *Options) error { return ChromeTrace(w, r) }, false},
	{FormatSVG, []string{".svg"}, "flame graph as a picture",
		func(w io.Writer, r *profile.Recording, o *Options) error {
			return SVG(w, r, SVGOptions{Title: o.Title, Mode: o.mode(r)})
		}, true},
}

// Formats returns all formats, the most useful first.
func Formats() []Format {
	var out []Format
	for i := range formats {
		out = append(out, formats[i].format)
	}
	return out
}

// Endings returns what file names can end with.
func Endings() []string {
	var out []string
	for i := range formats {
		out = append(out, formats[i].endings...)
	}
	return out
}

// FormatOf tells a format by the ending of a file's name. A bare .json is the
// ending of several, and so of none.
func FormatOf(fileName string) (Format, bool) {
	name := strings.ToLower(fileName)
	for i := range formats {
		for _, ending := range formats[i].endings {
			if strings.HasSuffix(name, ending) {
				return formats[i].format, true
			}
		}
	}
	return "", false
}

func (f Format) index() int {
	for i := range formats {
		if formats[i].format == f {
			return i
		}
	}
	return -1
}

// Ending is what the names of files of this format usually end with; empty for
// what is no format.
func (f Format) Ending() string {
	if i := f.index(); i >= 0 {
		return formats[i].endings[0]
	}
	return ""
}

// Description says in one line what the format is good for.
func (f Format) Description() string {
	if i := f.index(); i >= 0 {
		return formats[i].description
	}
	return ""
}

// OneMode reports whether files of this format have samples of one mode only.
func (f Format) OneMode() bool {
	i := f.index()
	return i >= 0 && formats[i].oneMode
}

// Options say how to encode. The zero value is right for most; a format ignores
// what it has no use for.
type Options struct {
	Title    string             // of pictures; empty: one made from the recording
	Base     *profile.Recording // show the difference from this one: HTML only
	Mode     *profile.Mode      // for formats that have one mode only; nil: the first one that there are samples of
	ByThread bool               // folded stacks begin with their thread
}

func (o *Options) mode(r *profile.Recording) profile.Mode {
	if o.Mode != nil {
		return *o.Mode
	}
	if there := SampledModes(r); len(there) > 0 {
		return there[0]
	}
	if sampled := modesOf(r); len(sampled) > 0 {
		return sampled[0]
	}
	return profile.CPU
}

// Encode writes a recording in a format.
func Encode(w io.Writer, r *profile.Recording, f Format, o Options) error {
	i := f.index()
	if i < 0 {
		return fmt.Errorf("there is no format %q", string(f))
	}
	if o.Base != nil && f != FormatHTML {
		return fmt.Errorf("%s files cannot show a difference between two recordings: html can", f)
	}
	return formats[i].encode(w, r, &o)
}
