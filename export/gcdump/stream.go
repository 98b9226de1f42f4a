package gcdump

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"unicode/utf16"
)

// A FastSerialization stream is a signature, an object, a table of forward references, the position of
// the table, and the position of that position. An object is a tag, its type, its fields, and a tag. A
// type is an object without a type, with a version, the least version of a reader, and a name; the
// second time, a reference to the first time. Numbers are little endian. Positions ("labels") have
// four bytes and count from the beginning of the stream.
//
// Source: microsoft/perfview, src/FastSerialization/FastSerialization.cs and StreamReaderWriter.cs.

const signature = "!FastSerialization.1"

// Tags.
const (
	tagNull      = 1
	tagReference = 2
	tagBegin     = 4
	tagEnd       = 6
	tagByte      = 8
	tagSkip      = 12 // a forward reference to the end of the following part
	tagString    = 13
)

// stream writes a FastSerialization stream. It keeps the first error, and close returns the error.
type stream struct {
	w       *bufio.Writer
	at      int64
	types   map[string]int64 // positions of types, by name
	forward []int64          // the targets of forward references
}

func newStream(w io.Writer) *stream {
	s := &stream{w: bufio.NewWriterSize(w, 1<<16), types: map[string]int64{}}
	s.string(signature)
	return s
}

func (s *stream) write(b []byte) {
	s.at += int64(len(b))
	_, _ = s.w.Write(b) // the error is kept for Flush
}

func (s *stream) byte(b byte) {
	s.at++
	_ = s.w.WriteByte(b)
}

func (s *stream) bool(v bool) {
	if v {
		s.byte(1)
	} else {
		s.byte(0)
	}
}

func (s *stream) int32(n int32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(n))
	s.write(b[:])
}

func (s *stream) int64(n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	s.write(b[:])
}

func (s *stream) float(f float32) { s.int32(int32(math.Float32bits(f))) }

// label writes a position. A position beyond 4 GB does not fit; close returns an error then.
func (s *stream) label(at int64) { s.int32(int32(uint32(at))) }

// string writes a text: the number of its UTF-16 units, and each unit by itself as UTF-8.
func (s *stream) string(text string) {
	units := utf16.Encode([]rune(text))
	s.int32(int32(len(units)))
	for _, u := range units {
		switch {
		case u < 0x80:
			s.byte(byte(u))
		case u < 0x800:
			s.byte(0xc0 | byte(u>>6))
			s.byte(0x80 | byte(u&0x3f))
		default:
			s.byte(0xe0 | byte(u>>12))
			s.byte(0x80 | byte(u>>6&0x3f))
			s.byte(0x80 | byte(u&0x3f))
		}
	}
}

// noString writes a missing text.
func (s *stream) noString() { s.int32(-1) }

// null writes a missing object.
func (s *stream) null() { s.byte(tagNull) }

// begin begins an object of a type.
func (s *stream) begin(name string, version, leastReader int32) {
	s.byte(tagBegin)
	if at, ok := s.types[name]; ok {
		s.byte(tagReference)
		s.label(at)
		return
	}
	s.types[name] = s.at
	s.byte(tagBegin)
	s.null()
	s.int32(version)
	s.int32(leastReader)
	s.string(name)
	s.end()
}

// end ends an object.
func (s *stream) end() { s.byte(tagEnd) }

func (s *stream) taggedBool(v bool) {
	s.byte(tagByte)
	s.bool(v)
}

func (s *stream) taggedString(text string) {
	s.byte(tagString)
	s.string(text)
}

// skippable writes a part that a reader can skip.
func (s *stream) skippable(what func()) {
	s.byte(tagSkip)
	s.int32(int32(len(s.forward)))
	n := len(s.forward)
	s.forward = append(s.forward, 0)
	what()
	s.forward[n] = s.at
}

// close writes the end of the file, after the object.
func (s *stream) close() error {
	s.end() // of all objects
	table := s.at
	s.int32(int32(len(s.forward)))
	for _, at := range s.forward {
		s.label(at)
	}
	trailer := s.at
	s.label(table)
	s.label(trailer)
	if s.at > math.MaxUint32 {
		return ErrTooLarge
	}
	return s.w.Flush()
}
