package export

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"

	"clrsnap/internal/profiletest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/report"
)

// How much reading may allocate for each byte of a file, and besides. Samples are the largest:
// the shortest have four bytes in a file. Then there are the indices of functions and stacks,
// and buffers.
const (
	allocatesPerByte = 300
	allocatesBesides = 1 << 19
	mostUnpacked     = 1032 // bytes, for each compressed byte
)

// FuzzReadRecording reads hostile files of every format. Accepted files must be sound: they can be
// written in every format, and read back from clrsnap's own.
func FuzzReadRecording(f *testing.F) {
	r := recorded()
	document := inflated(f, written(f, WriteRecording, r))
	f.Add(document)
	f.Add(bytes.Replace(document, []byte(`{"first":30,"lines":["\t}"]}`), []byte(`{"first":30,"lines":[]}`), 1))
	f.Add(inflated(f, written(f, Pprof, r)))
	f.Add(written(f, WriteRecording, r))
	f.Add(written(f, Speedscope, r))
	f.Add(written(f, foldedOf(profile.CPU, true), r))
	f.Add([]byte("[wall: microseconds];[incomplete stack];Main 3\n[alloc: bytes];Main;Byte[]_[e] 7\n"))
	events := profiletest.EventShop()
	f.Add(inflated(f, written(f, WriteRecording, events)))
	f.Add(inflated(f, written(f, Pprof, events)))
	f.Add(written(f, Speedscope, events))
	f.Add([]byte(`{"shared":{"frames":[{"name":"A!b(int)"}]},"profiles":[{"type":"evented","unit":"none","events":[` +
		`{"type":"O","frame":0,"at":1},{"type":"C","frame":0,"at":2}]}]}`))
	f.Add([]byte(`<html><script type="application/octet-stream" id="recording">H4sIAAAAAAAA</script>`))
	f.Fuzz(func(t *testing.T, file []byte) {
		var r *profile.Recording
		var err error
		input := len(file)
		if bytes.HasPrefix(file, gzipMagic) || isPage(file) {
			input *= mostUnpacked
		}
		testenv.Allocates(t, input, allocatesPerByte, allocatesBesides,
			func() { r, err = ReadRecording(bytes.NewReader(file)) })
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 1000 {
				t.Errorf("not a sentence: %q", err)
			}
			return
		}
		for name, write := range map[string]func(io.Writer, *profile.Recording) error{
			"pprof": Pprof, "speedscope": Speedscope, "folded": foldedOf(profile.CPU, false), "trace": ChromeTrace,
			"svg": func(w io.Writer, r *profile.Recording) error {
				return SVG(w, r,
					SVGOptions{Mode: profile.Alloc})
			},
			"tables": func(w io.Writer, r *profile.Recording) error { return report.Top(w, r, report.TopOptions{}) },
		} {
			if err := write(io.Discard, r); err != nil {
				t.Errorf("cannot be written as %s: %v", name, err)
			}
		}
		got := readBack(t, written(t, WriteRecording, r))
		if strings.ToValidUTF8(string(file), "") == string(file) && !reflect.DeepEqual(got, r) {
			t.Errorf("got %+v\nwant %+v", got, r)
		}
	})
}
