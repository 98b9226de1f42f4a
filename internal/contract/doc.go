// Package contract finds the layout of a CoreCLR's structures: the offsets of fields, the sizes of types, the values
// of globals, and the versions of the algorithmic contracts that define their use. A Descriptor has the layout. There
// are two sources of descriptors, and Complete merges them:
//
//   - Parse reads the runtime's own data descriptor. Newer runtimes export the descriptor as
//     DotNetRuntimeContractDescriptor (Symbol).
//   - EmbeddedFor returns clrsnap's embedded description of a version of the runtime. The addresses of globals come
//     from a table that every runtime exports as g_dacTable (TableSymbol). embedded/README.md has the format, and the
//     source of each fact.
//
// This package does not check whether a description is right: clr.Check does.
//
// # The runtime's own descriptor
//
// The layout of the descriptor's header is in docs/design/datacontracts/contract-descriptor.md of dotnet/runtime. The
// header points to JSON in the compact format of data_descriptor.md beside that file.
//
// # Versions
//
// .NET 9 and 10 emit version 0 of the JSON. .NET 11 emits version 2: the same format, with strings as contract
// versions ("c1"). The number was raised so that tools refuse previews with contracts still in flux (dotnet/runtime
// pull requests 127020 and 131858). Parse reads both versions, and refuses other versions.
//
// The numbers of contract versions restarted when .NET 11 froze the contracts (pull requests 131790 and 131858): "c1"
// of a contract is not its version 1. Version 2 of ExecutionManager in .NET 10 is c1 in .NET 11.
//
// "subDescriptors" are descriptors of parts of the runtime; .NET 11 has one, of its garbage collector. Parse keeps
// them as addresses in SubDescriptors, and Part reads one.
//
// # Use
//
// A package that reads structures of the runtime declares its needs and binds them once:
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
