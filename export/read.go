package export

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"regexp"

	"clrsnap/internal/display"
	"clrsnap/profile"
)

// Bounds of reading, in bytes, after decompression.
const (
	maxDocument = 1 << 30   // clrsnap's own format, read as a stream
	maxForeign  = 256 << 20 // the other formats, in memory as a whole
)

// readable ends the errors about unreadable files.
const readable = "clrsnap reads recordings (.clrsnap), its own HTML flame graphs, pprof, speedscope and folded stacks"

// ReadRecording reads a recording. It recognises the format by the content: clrsnap's own format,
// clrsnap's HTML pages, pprof, speedscope or folded stacks, with or without gzip. clrsnap's own format
// and HTML pages return everything written. The other formats store less; the recording's Notes say
// what is not known, for example the times of samples.
//
// The input may be hostile. Every index and number of the result has been checked. A file is refused
// if the recording, and showing it, could take more than a gigabyte of memory.
func ReadRecording(rd io.Reader) (*profile.Recording, error) {
	r, err := read(rd)
	var large tooLargeError
	if errors.As(err, &large) {
		return nil, large // without the errors around, about the place in the file
	}
	return r, err
}

func read(rd io.Reader) (*profile.Recording, error) {
	in := bufio.NewReaderSize(rd, sniffSize)
	head, err := in.Peek(2)
	if len(head) == 0 {
		return nil, whyEmpty(err)
	}
	if !bytes.Equal(head, gzipMagic) {
		return readPlain(in)
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, unpacking(err)
	}
	return readPlain(bufio.NewReaderSize(unpacked{z}, sniffSize))
}

var gzipMagic = []byte{0x1f, 0x8b}

// sniffSize is how many bytes at the start of a file are inspected to recognise the format.
const sniffSize = 1 << 16

func whyEmpty(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty: " + readable)
	}
	return err
}

// unpacked reads gzip's output, and makes its errors clear.
type unpacked struct{ io.Reader }

func (u unpacked) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = unpacking(err)
	}
	return n, err
}

func unpacking(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return fmt.Errorf("the file is truncated: %w", io.ErrUnexpectedEOF)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return fmt.Errorf("the file is damaged: %w", err)
	}
	return err
}

// ours matches the beginning of clrsnap's own format.
var ours = regexp.MustCompile(`^\s*\{\s*"format"\s*:\s*"` + recordingFormat + `"`)

// readPlain reads a file without compression, or after decompression.
func readPlain(in *bufio.Reader) (*profile.Recording, error) {
	head, err := in.Peek(sniffSize)
	if len(head) == 0 {
		return nil, whyEmpty(err)
	}
	if ours.Match(head) {
		return readDocument(newBounded(in, maxDocument))
	}
	all, err := readAll(newBounded(in, maxForeign))
	if err != nil {
		return nil, err
	}
	for _, f := range foreign {
		if f.is(all) {
			return f.read(all)
		}
	}
	return nil, errors.New("this is not a recording: " + readable)
}

// bounded is like io.LimitReader, but long input gives an error, not an early end.
type bounded struct {
	r          io.Reader
	left, most int64
}

func newBounded(r io.Reader, most int64) *bounded { return &bounded{r, most, most} }

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if _, err := io.ReadFull(b.r, make([]byte, 1)); err != nil {
			return 0, err
		}
		return 0, tooLarge(fmt.Sprintf("is too large, with more than %d MB when it is decompressed", b.most>>20))
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// readAll is io.ReadAll for large input: it doubles its buffer, and so leaves less garbage.
func readAll(in io.Reader) ([]byte, error) {
	all := make([]byte, 0, 1<<16)
	for {
		n, err := in.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(all) == cap(all):
			all = append(make([]byte, 0, 2*cap(all)), all...)
		}
	}
}

// foreignFormat is a format other than our own.
type foreignFormat struct {
	is   func(all []byte) bool
	read func(all []byte) (*profile.Recording, error)
}

// foreign are the formats in the order of the attempts.
var foreign = []foreignFormat{
	{isPage, readPage},
	{beginsWith("PERFILE2"), refuse("this is a file of perf record: convert it to folded stacks " +
		"with perf script and stackcollapse-perf.pl")},
	{beginsWith("Nettrace"), refuse("this is a file of dotnet-trace: convert it " +
		"with dotnet-trace convert --format Speedscope")},
	{beginsWith("<svg", "<?xml"), refuse("this is a picture or other XML, which cannot be read back: " + readable)},
	{isFolded, readFolded}, // before JSON: the first frame can look like JSON, for example [libc.so.6]
	{beginsWith("{", "["), readJSON},
	{func([]byte) bool { return true }, readPprof}, // last: there is no magic number
}

func beginsWith(starts ...string) func([]byte) bool {
	return func(all []byte) bool {
		head := bytes.TrimSpace(all[:min(len(all), 512)])
		for _, s := range starts {
			if bytes.HasPrefix(head, []byte(s)) {
				return true
			}
		}
		return false
	}
}

func refuse(why string) func([]byte) (*profile.Recording, error) {
	return func([]byte) (*profile.Recording, error) { return nil, errors.New(why) }
}

// readJSON reads the formats in JSON. It recognises each format by its fields.
func readJSON(all []byte) (*profile.Recording, error) {
	if bytes.HasPrefix(bytes.TrimSpace(all), []byte("[")) {
		return nil, errChromeTrace
	}
	fields := map[string][]byte{}
	err := newMemoryScanner(all).fields(func(name string, value []byte) { fields[name] = value })
	has := func(name string) bool { return fields[name] != nil }
	switch {
	case err != nil:
		return nil, fmt.Errorf("this looks like JSON, but is damaged: %w", err)
	case has("profiles") && has("shared"):
		return readSpeedscope(fields)
	case has("traceEvents"):
		return nil, errChromeTrace
	case has("capturedAt") && has("threads"):
		return nil, errors.New("this is a snapshot of clrsnap stack --json, not a recording of clrsnap record")
	}
	return nil, errors.New("this JSON is not a recording: " + readable)
}

var errChromeTrace = errors.New("this is a Chrome trace, which cannot be read back: " + readable)

// clip cuts a text from a file to the length for an error message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return display.Clean(s)
}
