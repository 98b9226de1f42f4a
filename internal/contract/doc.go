// Package contract finds the layout of a CoreCLR's structures: the offsets of fields,
// the sizes of types, the values of globals, and the versions of the algorithmic
// contracts that define how these are used. A Descriptor holds all that. There are two
// sources of descriptors, and Complete merges them:
//
//   - Parse reads the runtime's own data descriptor, which newer runtimes export as
//     DotNetRuntimeContractDescriptor (Symbol).
//   - EmbeddedFor returns what is embedded in this program about a version of the
//     runtime. It reads the addresses of globals from a table that every runtime exports
//     as g_dacTable (TableSymbol). embedded/README.md has the format, and the source of
//     each fact.
//
// This package does not check whether a description is right: clr.Check does.
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
// The numbers of contract versions restarted when .NET 11 froze the contracts (pull
// requests 131790 and 131858): "c1" of a contract is not its version 1. What
// .NET 10 calls version 2 of ExecutionManager, .NET 11 calls c1.
//
// "subDescriptors" are descriptors of parts of the runtime; .NET 11 has one, of its
// garbage collector. They are kept as addresses in SubDescriptors, and Part reads one.
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
