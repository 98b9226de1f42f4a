package aot

import (
	"encoding/binary"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// The static fields of a class that are references lie together in an object that does not move. A section of the
// header lists the variables with the addresses of these objects, by the distances to the variables (dotnet/runtime,
// src/coreclr/nativeaot/System.Private.CoreLib/src/Internal/Runtime/CompilerHelpers/StartupCodeHelpers.cs,
// InitializeStatics).

// Bits of a variable whose object has not been made yet.
const notMade = 7

const maxStatics = 4 << 20 // bytes: a million classes

// Statics returns the objects with the static fields of classes.
func (n *Names) Statics(mem target.Memory) (out []arch.Addr, err error) {
	err = n.eachVariable(mem, func(_, obj arch.Addr) { out = append(out, obj) })
	return out, err
}

// eachVariable visits the variables of the classes whose objects have been made, and the objects.
func (n *Names) eachVariable(mem target.Memory, visit func(variable, obj arch.Addr)) error {
	if n.statics.length == 0 || n.statics.length > maxStatics {
		return fmt.Errorf("%w: the static fields have %d bytes", ErrFormat, n.statics.length)
	}
	r := target.NewReader(mem)
	b, err := r.Pieces(n.statics.at, int(n.statics.length)&^3)
	if err != nil {
		return err
	}
	for at := n.statics.at; len(b) > 0; b, at = b[4:], at+4 {
		variable := at + arch.Addr(int64(int32(binary.LittleEndian.Uint32(b))))
		if obj, err := r.Pointer(variable); err == nil && obj != 0 && obj&notMade == 0 {
			visit(variable, obj)
		}
	}
	return nil
}
