// Package contract finds out what the structures of a CoreCLR look like: the offsets
// of fields, the sizes of types, the values of globals, and the versions of the
// algorithmic contracts that say how these are to be used. A Descriptor holds all
// that. There are two to be had, and Complete puts them together:
//
//   - Parse reads what the runtime says of itself, the data descriptor that newer
//     ones export as DotNetRuntimeContractDescriptor (Symbol).
//   - EmbeddedFor has what this program knows of a version of the runtime. Where its
//     globals are, it finds in a table that every runtime exports as g_dacTable
//     (TableSymbol). embedded/README.md has the form and the source of each fact.
//
// Nothing here finds out whether a description is right: clr.Check does.
//
// # The runtime's own descriptor
//
// The layout of the descriptor's header is that of
// docs/design/datacontracts/contract-descriptor.md in dotnet/runtime, the JSON
// that it points to is the compact format of data_descriptor.md beside it.
//
// # Versions
//
// Version 0 of the JSON is what .NET 9 and 10 emit. .NET 11 emits 2: the same
// format, with contract versions that are strings ("c1"); the number was raised
// so that tools refuse previews whose contracts were still in flux
// (dotnet/runtime pull requests 127020 and 131858). Both are read; other
// versions are refused.
//
// The versions of contracts were counted anew when .NET 11 froze them (pull
// requests 131790 and 131858): "c1" of a contract is not its version 1. What
// .NET 10 calls version 2 of ExecutionManager, .NET 11 calls c1.
//
// "subDescriptors" (descriptors of parts of the runtime; .NET 11 has one, of its
// garbage collector) are kept as addresses in SubDescriptors and not followed.
//
// # Use
//
// A package that reads structures of the runtime declares what it needs and
// binds it once:
//
//	type threadLayout struct {
//		ID    uint32    `clr:"Thread.Id"`                  // offset in bytes
//		Size  uint32    `clr:"size:MethodTable"`           // size in bytes; "MethodTable.!" is the same
//		OSID  uint32    `clr:"Thread.OSId,optional"`       // Absent where the runtime has none
//		Name  uint32    `clr:"Thread.GCHandle|Thread.ExposedObject"` // the first that the runtime has
//		Store arch.Addr `global:"ThreadStore"`
//		Maps  uint64    `global:"CodeMaps,optional" has:"HasMaps"`
//		HasMaps bool
//	}
//	var l threadLayout
//	err := d.Bind(&l) // *MissingError names everything that is missing
package contract
