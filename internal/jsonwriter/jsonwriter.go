// Package jsonwriter writes JSON as a stream, so that a long list is never in memory as a whole. Package jsonwriter
// escapes characters that a terminal would not show unchanged, for example control characters and characters that
// change the direction of writing: the value stays the same, and JSON on a terminal is as safe as text.
package jsonwriter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer writes one JSON document. A Writer keeps the first error for Flush.
type Writer struct {
	w   *bufio.Writer
	buf []byte // of a number
	err error

	enc     *json.Encoder // into encoded; nil: not needed yet
	encoded bytes.Buffer
}

// New returns a Writer to w. Flush must be called at the end.
func New(w io.Writer) *Writer { return &Writer{w: bufio.NewWriterSize(w, 1<<16)} }

// Flush writes the buffered data, and returns the first error.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	return w.w.Flush()
}

// Text writes s unchanged.
func (w *Writer) Text(s string) {
	if _, err := w.w.WriteString(s); err != nil && w.err == nil {
		w.err = err
	}
}

// Bytes writes b unchanged.
func (w *Writer) Bytes(b []byte) {
	if _, err := w.w.Write(b); err != nil && w.err == nil {
		w.err = err
	}
}

// Field writes a further field of an object, on a line of its own.
func (w *Writer) Field(name string, v any) {
	w.Text(",\n")
	w.Key(name)
	w.Value(v)
}

// Key writes the name of a field, and the colon.
func (w *Writer) Key(name string) {
	w.Value(name)
	w.Text(":")
}

// Value writes any small value.
func (w *Writer) Value(v any) { w.Bytes(w.encode(v, "\n")) }

// Open writes an object without its closing brace, so that fields can follow.
func (w *Writer) Open(v any) { w.Bytes(w.encode(v, "}\n")) }

// encode returns a value as JSON without end, valid until the next call.
func (w *Writer) encode(v any, end string) []byte {
	if w.enc == nil {
		w.enc = json.NewEncoder(&w.encoded)
		w.enc.SetEscapeHTML(false) // names are full of < and >
	}
	w.encoded.Reset()
	if err := w.enc.Encode(v); err != nil && w.err == nil {
		w.err = err
	}
	return escaped(bytes.TrimSuffix(w.encoded.Bytes(), []byte(end)))
}

// String returns s as JSON.
func String(s string) string {
	var w Writer
	return string(w.encode(s, "\n")) // every string can be encoded
}

// escaped returns JSON with escapes for characters that a terminal would not show unchanged. The encoder has already
// escaped characters below U+0020 and replaced invalid UTF-8; characters from U+007F on occur in strings only.
func escaped(b []byte) []byte {
	at := bytes.IndexFunc(b, isHidden)
	if at < 0 {
		return b // nearly always
	}
	out := bytes.Clone(b[:at])
	for _, r := range string(b[at:]) {
		switch {
		case !isHidden(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

func isHidden(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r) }

// Int writes an integer.
func (w *Writer) Int(v int64) {
	w.buf = strconv.AppendInt(w.buf[:0], v, 10)
	w.Bytes(w.buf)
}

// Uint writes an integer that is not negative.
func (w *Writer) Uint(v uint64) {
	w.buf = strconv.AppendUint(w.buf[:0], v, 10)
	w.Bytes(w.buf)
}

// List writes an array of n elements. List stops at the first error.
func (w *Writer) List(n int, element func(i int)) {
	w.Text("[")
	for i := range n {
		if i > 0 {
			w.Text(",")
		}
		element(i)
		if w.err != nil {
			return
		}
	}
	w.Text("]")
}
