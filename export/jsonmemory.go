package export

import (
	"bufio"
	"bytes"
	"errors"
)

// memoryScanner reads JSON from memory, and knows the place of each value. So the fields of an object
// can be read in any order.
type memoryScanner struct {
	jsonScanner
	all []byte
	in  bytes.Reader
}

// maxFields bounds the fields of an object when they are read in a different order.
const maxFields = 1 << 12

func newMemoryScanner(all []byte) *memoryScanner {
	m := &memoryScanner{}
	m.r = bufio.NewReaderSize(&m.in, 1<<14)
	m.reset(all)
	return m
}

// reset has m read another document.
func (m *memoryScanner) reset(all []byte) {
	m.all = all
	m.in.Reset(all)
	m.r.Reset(&m.in)
}

// element skips a value and returns its text.
func (m *memoryScanner) element() ([]byte, error) {
	if _, err := m.peek(); err != nil {
		return nil, err
	}
	start := m.at()
	err := m.skip()
	return m.all[start:m.at()], err
}

// at returns the scanner's offset in the document.
func (m *memoryScanner) at() int { return len(m.all) - m.in.Len() - m.r.Buffered() }

// fields calls field with each field of an object, which must be the whole document.
func (m *memoryScanner) fields(field func(name string, value []byte)) error {
	n := 0
	err := m.object(func(name string) error {
		if n++; n > maxFields {
			return errors.New("an object has too many fields")
		}
		value, err := m.element()
		field(name, value)
		return err
	})
	if err == nil {
		err = m.end()
	}
	return err
}
