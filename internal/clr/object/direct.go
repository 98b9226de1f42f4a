package object

import "clrsnap/internal/arch"

// Direct returns the offset in a ThreadLocalData (thread.Store.LocalData) of a thread-static field that is no
// reference, in bytes. The class, by its name, is not generic, and is in the module that defines the type of the
// MethodTable in.
func (r *Reader) Direct(in arch.Addr, class, field string) (uint32, error) {
	return r.types.Direct(in, class, field)
}

// Named returns a class by its name. The class is not generic, and is in the module that defines the type of the
// MethodTable in.
func (r *Reader) Named(in arch.Addr, class string) (*Class, error) {
	mt, err := r.types.Named(in, class)
	if err != nil {
		return nil, err
	}
	return r.Table(mt)
}
