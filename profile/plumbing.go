package profile

import (
	"cmp"

	"clrsnap/snapshot"
)

// Plumbing returns the part of .NET of f, for example "pool" or "Kestrel", if f is a framework frame; "" if not.
// Framework frames lead from a thread to the program's code.
func (f *Function) Plumbing() string {
	return snapshot.FrameworkPartOf(f.Kind, cmp.Or(f.Method, f.Display), f.Origin())
}
