package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"clrsnap/export"
	"clrsnap/export/gcdump"
	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// heapFormat is a format of heap -o other than text, by its file extensions.
type heapFormat struct {
	extensions  []string
	description string
	graph       bool // the format has all objects and their references
	write       func(w io.Writer, h, base *snapshot.Heap) error
}

var heapFormats = []heapFormat{
	{[]string{".html", ".htm"}, "treemap: a page for any browser, with search", false, drawHeap(export.HeapMap)},
	{[]string{".svg"}, "treemap as a picture", false, drawHeap(export.HeapSVG)},
	{[]string{".gcdump"}, "all objects and references, for Visual Studio, PerfView, dotnet-gcdump report", true,
		func(w io.Writer, h, _ *snapshot.Heap) error {
			return gcdump.Write(w, h, gcdump.Options{
				Version: versionText(), Log: strings.Join(report.HeapNotes(h), "\n"),
			})
		}},
}

// drawHeap is a heapFormat's write, for pictures.
func drawHeap(draw func(io.Writer, *snapshot.Heap, export.HeapMapOptions) error) func(
	w io.Writer, h, base *snapshot.Heap,
) error {
	return func(w io.Writer, h, base *snapshot.Heap) error {
		return draw(w, h, export.HeapMapOptions{Version: versionText(), Base: base, Notes: report.HeapNotes(h)})
	}
}

// heapFormatOf is the format for a file name's extension; nil: there is none, and the file has text.
func heapFormatOf(file string) *heapFormat {
	for i := range heapFormats {
		for _, e := range heapFormats[i].extensions {
			if strings.HasSuffix(strings.ToLower(file), e) {
				return &heapFormats[i]
			}
		}
	}
	return nil
}

// heapFormatsHelp describes the formats.
func heapFormatsHelp() string {
	var b strings.Builder
	for _, f := range heapFormats {
		fmt.Fprintf(&b, "  -o FILE%-10s %s\n", f.extensions[0], f.description)
	}
	return strings.TrimRight(b.String(), "\n")
}

// checkOutput refuses flags that do not fit the format of the file.
func (f *heapFlags) checkOutput(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if f.format = heapFormatOf(f.output); f.format == nil {
		return nil
	}
	extension := filepath.Ext(f.output)
	for _, flag := range []string{"type", "roots", "strings", "json", "limit", "full"} {
		if given(flag) {
			return usagef("--%s is for text and JSON, not for a %s file: leave out one of the two", flag, extension)
		}
	}
	for _, flag := range []string{"diff", "every", "retained"} {
		if given(flag) && f.format.graph {
			return usagef("--%s does not go with a %s file, because the file has all objects and references of a "+
				"single look: leave out one of the two", flag, extension)
		}
	}
	return nil
}

// exportHeap writes a heap in the format of the file's extension, and describes the contents on standard error.
func (a *app) exportHeap(h, base *snapshot.Heap, out *pendingFile, f *heapFlags) error {
	if f.format.graph && h.Graph == nil {
		return fmt.Errorf("nothing was written to %s, because only a part of the heap was read: try again",
			out.title())
	}
	if err := out.print(func(w io.Writer) error { return f.format.write(w, h, base) }); err != nil {
		return err
	}
	all := h.Objects()
	say(a.stderr, "%s has %s objects of %s types with %s", out.title(), display.Number(int(all.Count)),
		display.Number(len(h.Types)), display.Weight(profile.Bytes, int64(all.Bytes)))
	for _, note := range report.HeapNotes(h) {
		say(a.stderr, "note: %s", note)
	}
	return nil
}
