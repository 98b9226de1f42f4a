package ilmap

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// Saved is a variable in the Continuation of a suspended method.
type Saved struct {
	Number uint32 // as of Variable
	Offset uint32 // from the Continuation's start, in bytes
}

// Suspensions returns the number of suspension points of c's method; 0: none, or not known, as for ReadyToRun code.
func (r *Reader) Suspensions(c *codemap.Code) (int, error) {
	b, at, err := r.suspensions(c, (maxEncoded+1)/2)
	if err != nil || len(b) == 0 {
		return 0, err
	}
	count := nibbles{b: b}
	n := count.number()
	if count.bad || n > maxPoints {
		return 0, corrupt("%d suspension points at %v", n, at)
	}
	return int(n), nil
}

// Saved returns the variables that c's method has saved at a suspension point, by the point's number and its offset
// in the code. None: not known, as for ReadyToRun code.
func (r *Reader) Saved(c *codemap.Code, number int32, native uint32) ([]Saved, error) {
	b, at, err := r.suspensions(c, maxVariables)
	if err != nil || len(b) == 0 {
		return nil, err
	}
	out, err := saved(b, number, native)
	if err != nil {
		return nil, corrupt("suspension points at %v", at)
	}
	return out, nil
}

// suspensions returns at most so many bytes of the suspension points in the debug info.
func (r *Reader) suspensions(c *codemap.Code, most uint32) ([]byte, arch.Addr, error) {
	info, err := r.code.DebugInfo(c)
	if err != nil || info.At == 0 {
		return nil, 0, err
	}
	form, err := r.formOf(&info)
	if err != nil || !form.fat {
		return nil, 0, err
	}
	h, err := r.header(info.At, form)
	if err != nil || h.asyncs == 0 {
		return nil, 0, err
	}
	if h.size > maxBounds || h.vars > maxVariables {
		return nil, 0, corrupt("%d bytes of variables at %v", h.vars, info.At)
	}
	at := info.At + arch.Addr(h.at) + arch.Addr(h.size) + arch.Addr(h.vars) + arch.Addr(h.async)
	b, err := r.mem.Bytes(at, int(min(h.asyncs, most)))
	return b, at, err
}

// saved picks the variables of one suspension point from the variables of all points. First come the number of points
// and the number of all variables; then, for each point, the distance from the point before, and the number of its
// variables; then the variables (debuginfostore.cpp, CompressAsyncDebugInfo).
func saved(b []byte, number int32, native uint32) ([]Saved, error) {
	r := nibbles{b: b}
	points, all := r.number(), r.number()
	most := uint32(len(b)) * 2 // numbers have a nibble at least
	if r.bad || points > most || all > most {
		return nil, ErrCorrupt
	}
	at, skip, count := uint32(0), uint32(0), uint32(0)
	for i := range points {
		at += uint32(r.signed())
		n := r.number()
		switch {
		case n > all || skip > all:
			return nil, ErrCorrupt
		case int64(i) < int64(number):
			skip += n
		case int64(i) == int64(number) && at == native:
			count = n
		}
	}
	var out []Saved
	for i := range all {
		v := Saved{Number: r.number() + firstVariable11, Offset: r.number()}
		if r.bad {
			return nil, ErrCorrupt
		}
		if i >= skip && i-skip < count {
			out = append(out, v)
		}
	}
	return out, nil
}
