package export

import (
	"clrsnap/internal/display"
	"clrsnap/profile"
)

// functionSources are the functions of a pprof profile: one for each function and source file. The
// first functions are the recording's functions, in their order.
type functionSources struct {
	list  []functionSource
	index map[functionSourceKey]uint64 // ids of further functions
}

// functionSource is a function of the profile.
type functionSource struct {
	functionSourceKey
	start int32 // the first line of the function; 0: not known
}

type functionSourceKey struct{ function, file int32 }

func newFunctionSources(r *profile.Recording) functionSources {
	s := functionSources{list: make([]functionSource, len(r.Functions)), index: map[functionSourceKey]uint64{}}
	for i := range s.list {
		s.list[i].function = int32(i)
	}
	for i := range r.Locations {
		l := &r.Locations[i]
		file := sourceFileOf(r, l)
		if file == 0 {
			continue
		}
		key := functionSourceKey{l.Function, file}
		if own := &s.list[l.Function]; own.file == 0 {
			*own = functionSource{key, startOf(r, l, file)}
		} else if _, ok := s.index[key]; !ok && own.file != file {
			s.list = append(s.list, functionSource{key, startOf(r, l, file)})
			s.index[key] = uint64(len(s.list))
		}
	}
	return s
}

// sourceFileOf returns the file of a location; 0: not known.
func sourceFileOf(r *profile.Recording, l *profile.Location) int32 {
	switch {
	case l.Line > 0:
		return r.Lines[l.Line].File
	case l.Method > 0:
		return r.Methods[l.Method].File
	}
	return 0
}

// startOf returns the first line of a location's method in a file.
func startOf(r *profile.Recording, l *profile.Location, file int32) int32 {
	if l.Method > 0 && r.Methods[l.Method].File == file {
		return r.Methods[l.Method].First
	}
	return 0
}

// id returns the id of a location's function. A location without a known file is in the function's
// first file.
func (s *functionSources) id(r *profile.Recording, l *profile.Location) uint64 {
	if id, ok := s.index[functionSourceKey{l.Function, sourceFileOf(r, l)}]; ok {
		return id
	}
	return uint64(l.Function + 1)
}

// writeFunctions writes the functions.
func (e *pprofEncoder) writeFunctions() {
	for i, s := range e.sources.list {
		f := &e.r.Functions[s.function]
		file := f.Module
		if s.file > 0 {
			file = e.r.Files[s.file].Title()
		}
		b := appendNumber(nil, 1, uint64(i+1))
		b = e.w.text(b, 2, display.FullName(f))
		b = e.w.text(b, 3, f.Method)
		b = e.w.text(b, 4, file)
		e.w.message(5, appendNumber(b, 5, uint64(s.start)))
	}
}
