package export

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// jsonScanner reads a JSON document as a stream, so that a table of a million rows is not in memory
// twice. encoding/json would need each value as a whole, and takes ten times as long for a number.
type jsonScanner struct {
	r   *bufio.Reader
	buf []byte // of a value read as a whole
}

// Bounds of a value read as a whole.
const (
	maxValue = 2*maxName + 1<<10 // bytes
	maxDepth = 64                // nested objects and arrays
)

// next returns the next byte except white space.
func (s *jsonScanner) next() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return 0, unexpectedEOF(err)
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, nil
		}
	}
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (s *jsonScanner) peek() (byte, error) {
	c, err := s.next()
	if err == nil {
		err = s.r.UnreadByte()
	}
	return c, err
}

func (s *jsonScanner) expect(want byte) error {
	c, err := s.next()
	if err == nil && c != want {
		err = fmt.Errorf("found %q where %q should be", c, want)
	}
	return err
}

// end returns an error if anything except white space follows. It reads to the end of the input,
// because gzip checks its checksum there.
func (s *jsonScanner) end() error {
	for {
		c, err := s.r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case c != ' ' && c != '\n' && c != '\t' && c != '\r':
			return fmt.Errorf("found %q after the end of the document", c)
		}
	}
}

// object calls field with each key of an object. field must read the value.
func (s *jsonScanner) object(field func(key string) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	return s.elements('}', func(int) error {
		key, err := s.text()
		if err == nil {
			err = s.expect(':')
		}
		if err == nil {
			err = field(key)
		}
		if err != nil && key != "" {
			return fmt.Errorf("%s: %w", clip(key), err)
		}
		return err
	})
}

// array calls element with each index of an array. element must read the value.
func (s *jsonScanner) array(element func(i int) error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	return s.elements(']', element)
}

func (s *jsonScanner) elements(end byte, element func(i int) error) error {
	c, err := s.peek()
	if err == nil && c == end {
		return s.expect(end)
	}
	for i := 0; err == nil; i++ {
		if err = element(i); err != nil {
			break
		}
		if c, err = s.next(); err == nil && c != ',' {
			if c != end {
				err = fmt.Errorf("found %q where ',' or %q should be", c, end)
			}
			break
		}
	}
	return err
}

// integer reads an integer.
func (s *jsonScanner) integer() (int64, error) {
	c, err := s.next()
	negative := err == nil && c == '-'
	if negative {
		c, err = s.r.ReadByte()
	}
	if err != nil {
		return 0, unexpectedEOF(err)
	}
	v, err := s.digits(c)
	switch {
	case err != nil:
		return 0, err
	case v > math.MaxInt64:
		return 0, errTooLarge
	case negative:
		return -int64(v), nil
	}
	return int64(v), nil
}

// unsigned reads an integer that is not negative.
func (s *jsonScanner) unsigned() (uint64, error) {
	c, err := s.next()
	if err != nil {
		return 0, err
	}
	return s.digits(c)
}

var errTooLarge = errors.New("a number is too large")

// digits reads a number whose first digit is c.
func (s *jsonScanner) digits(c byte) (uint64, error) {
	if c < '0' || c > '9' {
		return 0, fmt.Errorf("found %q where an integer should be", c)
	}
	v := uint64(c - '0')
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return 0, unexpectedEOF(err)
		}
		switch {
		case c >= '0' && c <= '9':
		case c == '.' || c == 'e' || c == 'E':
			return 0, errors.New("a number is not an integer")
		default:
			return v, s.r.UnreadByte()
		}
		d := uint64(c - '0')
		if v > (math.MaxUint64-d)/10 {
			return 0, errTooLarge
		}
		v = v*10 + d
	}
}

// text reads a string.
func (s *jsonScanner) text() (string, error) {
	raw, err := s.raw(true)
	if err != nil {
		return "", err
	}
	if raw[0] != '"' {
		return "", fmt.Errorf("found %q where a string should be", raw[0])
	}
	if plain := raw[1 : len(raw)-1]; isPlain(plain) {
		return string(plain), nil
	}
	var out string
	return out, unmarshal(raw, &out)
}

// isPlain reports whether a JSON string has no escapes, and can be taken unchanged. Nearly all strings
// are plain.
func isPlain(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c >= 0x80 || c == '\\' {
			return false
		}
	}
	return true
}

// float reads any number.
func (s *jsonScanner) float() (float64, error) {
	raw, err := s.raw(true)
	if err != nil {
		return 0, err
	}
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, fmt.Errorf("found %q where a number should be", c)
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, fmt.Errorf("%s is not a number", clip(string(raw)))
	}
	return v, nil
}

// A jsonList is an array that is read element by element, with a call of more before each element.
type jsonList struct {
	s     *jsonScanner
	began bool
}

// more reports whether there is another element. If so, the caller must read it.
func (l *jsonList) more() (bool, error) {
	if !l.began {
		l.began = true
		if err := l.s.expect('['); err != nil {
			return false, err
		}
		c, err := l.s.peek()
		if err != nil || c != ']' {
			return err == nil, err
		}
	}
	c, err := l.s.next()
	if err == nil && c != ',' && c != ']' {
		err = fmt.Errorf("found %q where ',' or ']' should be", c)
	}
	return c == ',', err
}

// value reads any value as a whole.
func (s *jsonScanner) value(into any) error {
	raw, err := s.raw(true)
	if err != nil {
		return err
	}
	return unmarshal(raw, into)
}

// unmarshal is json.Unmarshal with a short error: json's can be as long as its input.
func unmarshal(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return errors.New(clip(err.Error()))
	}
	return nil
}

// skip skips a value.
func (s *jsonScanner) skip() error {
	_, err := s.raw(false)
	return err
}

// raw reads one value. If keep, it returns the text, valid until the next call. raw only finds the
// value's end, and does not check the inside.
func (s *jsonScanner) raw(keep bool) ([]byte, error) {
	c, err := s.next()
	if err != nil {
		return nil, err
	}
	if isEnd(c) || c == ':' {
		return nil, fmt.Errorf("found %q where a value should be", c)
	}
	out := append(s.buf[:0], c)
	defer func() { s.buf = out }()
	v := valueState{quoted: c == '"'}
	v.depth = v.bracket(c)
	plain := !v.quoted && v.depth == 0 // a number or a literal, up to the next isEnd byte
	for {
		if c, err = s.r.ReadByte(); err != nil {
			return nil, unexpectedEOF(err)
		}
		if plain && isEnd(c) {
			return out, s.r.UnreadByte()
		}
		if keep {
			out = append(out, c)
		}
		v.step(c)
		if v.depth > maxDepth || len(out) > maxValue {
			return nil, errors.New("a value is too large")
		}
		if !plain && !v.quoted && v.depth <= 0 {
			return out, nil
		}
	}
}

// valueState is the scanner's place in a value.
type valueState struct {
	depth           int
	quoted, escaped bool
}

func (v *valueState) step(c byte) {
	switch {
	case v.escaped:
		v.escaped = false
	case v.quoted:
		v.escaped, v.quoted = c == '\\', c != '"'
	case c == '"':
		v.quoted = true
	default:
		v.depth += v.bracket(c)
	}
}

func (*valueState) bracket(c byte) int {
	switch c {
	case '{', '[':
		return 1
	case '}', ']':
		return -1
	}
	return 0
}

// isEnd reports whether c can follow a number or a literal.
func isEnd(c byte) bool {
	return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\t' || c == '\r'
}
