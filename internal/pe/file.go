package pe

import (
	"errors"
	"io"
	"math"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// File makes an assembly's file an image at address 0.
func File(r io.ReaderAt) *target.Reader { return target.NewReader(file{r}) }

type file struct{ r io.ReaderAt }

// ReadMemory implements target.Memory.
func (f file) ReadMemory(p []byte, addr arch.Addr) error {
	if addr > math.MaxInt64 {
		return &target.ReadError{Addr: addr, Len: len(p), Err: io.ErrUnexpectedEOF}
	}
	n, err := f.r.ReadAt(p, int64(addr))
	switch {
	case n == len(p): // io.ReaderAt may say io.EOF there
		return nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return &target.ReadError{Addr: addr, Len: len(p), Err: err}
}
