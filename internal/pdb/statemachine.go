package pdb

import "clrsnap/internal/ecma335"

// Kickoff returns the method, as the user wrote it, for the state machine's method moveNext:
// an async method or an iterator.
func (f *File) Kickoff(moveNext uint32) (method uint32, ok bool) {
	method = f.indexed().kickoffs[moveNext]
	return method, method != 0
}

// MoveNext returns the method with the code of an async method or an iterator.
func (f *File) MoveNext(kickoff uint32) (method uint32, ok bool) {
	method = f.indexed().moveNexts[kickoff]
	return method, method != 0
}

// Async has the places where an async method gives up its thread.
type Async struct {
	Catch    uint32 // IL offset of the handler around everything, in async void methods
	HasCatch bool
	Steps    []Step // in the order of the source
}

// A Step is an await.
type Step struct {
	Yield  uint32 // IL offset in MoveNext at which the method waits
	Resume uint32 // IL offset at which the method goes on
	Method uint32 // the method that goes on: MoveNext again
}

// maxOffset bounds IL offsets in Async.
const maxOffset = 0x80000000

// Async returns the awaits of the method moveNext; false: moveNext belongs to no async method, or the
// PDB has no data. The blob has the handler's offset plus one (0: no handler), and for each await two
// offsets of four bytes and a compressed row number.
func (f *File) Async(moveNext uint32) (a Async, ok bool, err error) {
	at := f.indexed().asyncs[moveNext]
	if at == 0 {
		return Async{}, false, nil
	}
	b, err := f.blob(at)
	if err != nil {
		return Async{}, false, err
	}
	r := ecma335.NewBlobReader(b)
	handler, err := r.Uint32()
	if err != nil {
		return Async{}, false, err
	}
	if handler > maxOffset {
		return Async{}, false, malformed("a handler at IL offset %#x", handler-1)
	}
	if handler > 0 {
		a.Catch, a.HasCatch = handler-1, true
	}
	for r.Len() > 0 {
		s, err := f.step(&r)
		if err != nil {
			return Async{}, false, err
		}
		a.Steps = append(a.Steps, s)
	}
	return a, true, nil
}

func (f *File) step(r *ecma335.BlobReader) (s Step, err error) {
	if s.Yield, err = r.Uint32(); err != nil {
		return s, err
	}
	if s.Resume, err = r.Uint32(); err != nil {
		return s, err
	}
	if s.Method, err = r.Uint(); err != nil {
		return s, err
	}
	if s.Yield >= maxOffset || s.Resume >= maxOffset || !f.isMethod(s.Method) {
		return s, malformed("an await at %#x that goes on at %#x of method %d", s.Yield, s.Resume, s.Method)
	}
	return s, nil
}
