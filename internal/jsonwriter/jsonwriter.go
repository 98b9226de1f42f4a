// Package jsonwriter writes JSON as a stream, so that a long list is never in memory as a
// whole.
package jsonwriter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strconv"
)

// Writer writes one JSON document. It keeps the first error, which Flush returns.
type Writer struct {
	w   *bufio.Writer
	buf []byte // of a number
	err error

	enc     *json.Encoder // into encoded; nil: not needed yet
	encoded bytes.Buffer
}

// New returns a Writer to w. Flush must be called at the end.
func New(w io.Writer) *Writer { return &Writer{w: bufio.NewWriterSize(w, 1<<16)} }

// Err returns the first error.
func (w *Writer) Err() error { return w.err }

// Flush writes what is buffered, and returns the first error.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	return w.w.Flush()
}

// Text writes s as it is.
func (w *Writer) Text(s string) {
	if _, err := w.w.WriteString(s); err != nil && w.err == nil {
		w.err = err
	}
}

// Bytes writes b as it is.
func (w *Writer) Bytes(b []byte) {
	if _, err := w.w.Write(b); err != nil && w.err == nil {
		w.err = err
	}
}

// Field writes a field of an object that is not the first, on a line of its own.
func (w *Writer) Field(name string, v any) {
	w.Text(",\n")
	w.Key(name)
	w.Value(v)
}

// Key writes the name of a field, and the colon behind it.
func (w *Writer) Key(name string) {
	w.Value(name)
	w.Text(":")
}

// Value writes any small value.
func (w *Writer) Value(v any) { w.encode(v, "\n") }

// Open writes an object without its closing brace, so that fields can follow.
func (w *Writer) Open(v any) { w.encode(v, "}\n") }

// encode writes a value without this end.
func (w *Writer) encode(v any, end string) {
	if w.enc == nil {
		w.enc = json.NewEncoder(&w.encoded)
		w.enc.SetEscapeHTML(false) // names are full of < and >
	}
	w.encoded.Reset()
	if err := w.enc.Encode(v); err != nil && w.err == nil {
		w.err = err
	}
	w.Bytes(bytes.TrimSuffix(w.encoded.Bytes(), []byte(end)))
}

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

// List writes an array of n elements. It stops at the first error.
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
