package export

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"regexp"

	"clrsnap/profile"
)

// Bounds of what is read, after it was unpacked.
const (
	maxDocument = 1 << 30   // bytes of our own format, which is read as it comes
	maxForeign  = 256 << 20 // bytes of the others, which are in memory as a whole
)

// readable is said where a file cannot be read.
const readable = "clrsnap reads recordings (.clrsnap), its own HTML flame graphs, pprof, speedscope and folded stacks"

// ReadRecording reads a recording in any format that can be read back, told by
// its content: our own, our HTML pages, pprof, speedscope and folded stacks, with
// or without gzip. Of our own format it brings back all that was written; the
// others know less. The input may be hostile: what comes out is sound, and what
// is allocated is bounded, as is what it takes to show it: see recordingBudget.
func ReadRecording(rd io.Reader) (*profile.Recording, error) {
	r, err := read(rd)
	var large tooLargeError
	if errors.As(err, &large) {
		return nil, large // wherever in the file that is
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

// sniffSize is how much of a file is looked at to tell what it is, in bytes.
const sniffSize = 1 << 16

func whyEmpty(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty: " + readable)
	}
	return err
}

// unpacked is gzip's output, whose errors say what they mean.
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
		return fmt.Errorf("the file is cut short: %w", io.ErrUnexpectedEOF)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return fmt.Errorf("the file is damaged: %w", err)
	}
	return err
}

// ours is how our own format begins.
var ours = regexp.MustCompile(`^\s*\{\s*"format"\s*:\s*"` + recordingFormat + `"`)

// readPlain reads what is not packed (any longer).
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
	return nil, errors.New("this is no recording: " + readable)
}

// bounded is a reader that has an error for what is too long, where
// io.LimitReader would have an end.
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
		return 0, tooLarge(fmt.Sprintf("is too large, with more than %d MB when it is unpacked", b.most>>20))
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// readAll is io.ReadAll for what can be large: it leaves less garbage behind.
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

// foreign are the formats in the order in which they are tried.
var foreign = []foreignFormat{
	{isPage, readPage},
	{beginsWith("PERFILE2"), refuse("this is the data of perf record: perf script and stackcollapse-perf.pl make folded stacks of it, which can be read")},
	{beginsWith("Nettrace"), refuse("this is a trace of dotnet-trace: dotnet-trace convert --format Speedscope makes a file of it that can be read")},
	{beginsWith("<svg", "<?xml"), refuse("this is a picture or other XML, which cannot be read back: " + readable)},
	{isFolded, readFolded}, // whose first frame can begin like JSON: [libc.so.6]
	{beginsWith("{", "["), readJSON},
	{func([]byte) bool { return true }, readPprof}, // which has no beginning of its own
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

// readJSON tells formats in JSON by their fields.
func readJSON(all []byte) (*profile.Recording, error) {
	if bytes.HasPrefix(bytes.TrimSpace(all), []byte("[")) {
		return nil, errChromeTrace
	}
	fields := map[string][]byte{}
	err := newMemoryScanner(all).fields(func(name string, value []byte) { fields[name] = value })
	has := func(name string) bool { return fields[name] != nil }
	switch {
	case err != nil:
		return nil, fmt.Errorf("this looks like JSON and is damaged: %w", err)
	case has("profiles") && has("shared"):
		return readSpeedscope(fields)
	case has("traceEvents"):
		return nil, errChromeTrace
	case has("capturedAt") && has("threads"):
		return nil, errors.New("this is a snapshot of clrsnap stack --json, not a recording of clrsnap record")
	}
	return nil, errors.New("this JSON is no recording: " + readable)
}

var errChromeTrace = errors.New("this is a Chrome trace, which cannot be read back: " + readable)

// clip is as much of a text from a file as a message can hold.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return Clean(s)
}
