package object

import (
	"encoding/binary"
	"fmt"
	"unicode/utf16"

	"clrsnap/internal/arch"
)

const (
	coreLib    = "System.Private.CoreLib"
	stringName = "string" // as name.Namer displays System.String
)

// Text reads a string, but no more than most UTF-16 code units. If the string is longer, cut is set.
func (r *Reader) Text(obj arch.Addr, most int) (text string, cut bool, err error) {
	c, err := r.Class(obj)
	if err != nil {
		return "", false, err
	}
	if c.Assembly != coreLib || c.Display != stringName && c.Display != "System.String" {
		return "", false, fmt.Errorf("%w: %v is no string", ErrNoObject, obj)
	}
	count, err := r.Offset(c, "_stringLength")
	if err != nil {
		return "", false, err
	}
	first, err := r.Offset(c, "_firstChar")
	if err != nil {
		return "", false, err
	}
	n, err := r.length(obj + arch.Addr(count))
	if err != nil || n == 0 {
		return "", false, err
	}
	cut = n > most
	b, err := r.mem.Bytes(obj+arch.Addr(first), 2*min(n, most))
	if err != nil {
		return "", false, err
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units)), cut, nil
}
