package export

import (
	"fmt"
	"io"
	"strings"

	"clrsnap/profile"
)

// Format is a format for recordings. Its value is the name for the flag --format.
type Format string

// The formats.
const (
	FormatHTML       Format = "html"       // see FlameGraph
	FormatRecording  Format = "clrsnap"    // see WriteRecording
	FormatPprof      Format = "pprof"      // see Pprof
	FormatSpeedscope Format = "speedscope" // see Speedscope
	FormatFolded     Format = "folded"     // see Folded
	FormatTrace      Format = "trace"      // see ChromeTrace
	FormatSVG        Format = "svg"        // see SVG
)

// formats are all formats, the most useful first, each with its file extensions, the usual extension
// first.
var formats = []struct {
	format      Format
	extensions  []string
	description string
	encode      func(io.Writer, *profile.Recording, *Options) error
	oneMode     bool
}{
	{FormatHTML, []string{".html", ".htm"},
		"interactive flame graph: one page for any browser, with the whole recording inside",
		func(w io.Writer, r *profile.Recording, o *Options) error {
			return FlameGraph(w, r, FlameOptions{Title: o.Title, Base: o.Base, Idle: o.Idle, Waits: o.ByWait})
		}, false},
	{FormatRecording, []string{".clrsnap"}, "everything that was recorded, to show or convert later",
		func(w io.Writer, r *profile.Recording, _ *Options) error { return WriteRecording(w, r) }, false},
	{FormatPprof, []string{".pb.gz", ".pprof"}, "for go tool pprof, Pyroscope, Parca",
		func(w io.Writer, r *profile.Recording, _ *Options) error { return Pprof(w, r) }, false},
	{FormatSpeedscope, []string{".speedscope.json", ".speedscope"},
		"for speedscope: a profile for each thread and mode",
		func(w io.Writer, r *profile.Recording, _ *Options) error { return Speedscope(w, r) }, false},
	{FormatFolded, []string{".folded", ".collapsed"},
		"folded stacks: a line of text for each different stack; several modes below a frame each",
		func(w io.Writer, r *profile.Recording, o *Options) error {
			return Folded(w, r, FoldedOptions{ByThread: o.ByThread})
		}, false},
	{FormatTrace, []string{".trace.json"}, "trace events for Perfetto: a time line for each thread",
		func(w io.Writer, r *profile.Recording, _ *Options) error { return ChromeTrace(w, r) }, false},
	{FormatSVG, []string{".svg"}, "flame graph as a picture",
		func(w io.Writer, r *profile.Recording, o *Options) error {
			return SVG(w, r, SVGOptions{Title: o.Title, Mode: o.Mode, Idle: o.Idle})
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

// Extensions returns the file extensions of all formats, for example ".html" and ".pb.gz".
func Extensions() []string {
	var out []string
	for i := range formats {
		out = append(out, formats[i].extensions...)
	}
	return out
}

// FormatOf returns the format for a file name's extension; false: there is none. There is none for
// ".json" alone, because several formats end with ".json".
func FormatOf(fileName string) (Format, bool) {
	name := strings.ToLower(fileName)
	for i := range formats {
		for _, extension := range formats[i].extensions {
			if strings.HasSuffix(name, extension) {
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

// Extension returns the format's usual file extension, for example ".html". The extension is empty if
// f is not in Formats.
func (f Format) Extension() string {
	if i := f.index(); i >= 0 {
		return formats[i].extensions[0]
	}
	return ""
}

// Description returns one line about the use of the format.
func (f Format) Description() string {
	if i := f.index(); i >= 0 {
		return formats[i].description
	}
	return ""
}

// OneMode reports whether a file of this format has only samples of one mode.
func (f Format) OneMode() bool {
	i := f.index()
	return i >= 0 && formats[i].oneMode
}

// Options are the options of Encode. The zero value works. A format ignores options for other formats,
// except Base.
type Options struct {
	Title string             // of HTML and SVG; empty: made from the program and the time
	Base  *profile.Recording // FormatHTML only: the recording to compare with; nil: none
	// Mode is the mode to write where Format.OneMode is true. The zero value, CPU, stands for the first
	// mode with samples in the recording.
	Mode profile.Mode
	Idle bool // FormatSVG: with idle threads; FormatHTML: idle threads show at first; other formats always have them
	// ByWait groups waiting time by the awaited object (profile.Recording.ByWait). ByWait is for
	// FormatHTML: the page has a switch for the grouping. For other formats, give Encode the result of
	// profile.Recording.ByWait.
	ByWait   bool
	ByThread bool // FormatFolded only: a frame with the thread's name stands before each stack
}

// modeOrFirst returns m. If m is CPU, the zero value, and there are no CPU samples, it returns the
// recording's first mode with samples, or else with statistics.
func modeOrFirst(r *profile.Recording, m profile.Mode) profile.Mode {
	if m != profile.CPU {
		return m
	}
	if there := r.SampledModes(); len(there) > 0 {
		return there[0]
	}
	if sampled := r.RecordedModes(); len(sampled) > 0 {
		return sampled[0]
	}
	return profile.CPU
}

// Encode writes a recording in a format. It returns an error if the format does not exist or cannot
// show the difference from Options.Base, or if the file would be too large (see MaxOutput).
func Encode(w io.Writer, r *profile.Recording, f Format, o Options) error {
	i := f.index()
	if i < 0 {
		return fmt.Errorf("there is no format %q: choose one of %v", string(f), Formats())
	}
	if o.Base != nil && f != FormatHTML {
		return fmt.Errorf("%s files cannot show a difference between two recordings: html can", f)
	}
	return formats[i].encode(w, r, &o)
}
