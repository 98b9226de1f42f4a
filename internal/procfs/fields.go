package procfs

import (
	"errors"
	"math"
)

// The parsers of this package read the kernel's text, described in proc_pid_stat(5) and its
// neighbours. The process chooses names, paths and environments in the text, so they are hostile:
// a parser returns an error, or an empty result, and takes no more memory than a few times its
// input.

// ErrFormat: a file does not have its documented format.
var ErrFormat = errors.New("unexpected format of a file in /proc")

// nextField splits b after its first run of characters other than white space.
func nextField(b []byte) (field, rest []byte) {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for i, c := range b {
		if c == ' ' || c == '\t' || c == '\n' {
			return b[:i], b[i:]
		}
	}
	return b, nil
}

// number reads a field of decimal digits.
func number(field []byte) (v uint64, ok bool) {
	const most = math.MaxUint64/10 - 1 // has room for one more digit
	for _, c := range field {
		if c < '0' || c > '9' || v > most {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	return v, len(field) > 0
}

// id reads a field with the id of a process, a thread, a user or a group.
func id(field []byte) (int, bool) {
	v, ok := number(field)
	return int(v), ok && v <= math.MaxUint32
}

// leadingHex reads the hexadecimal digits at the begin of b, and returns the rest.
func leadingHex(b []byte) (v uint64, rest []byte) {
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return v, b[i:]
		}
	}
	return v, nil
}

// hex reads a field of hexadecimal digits, with or without 0x.
func hex(field []byte) (v uint64, ok bool) {
	if len(field) > 2 && field[0] == '0' && field[1] == 'x' {
		field = field[2:]
	}
	v, rest := leadingHex(field)
	return v, len(field) > 0 && len(field) <= 16 && len(rest) == 0
}
