// Package aot names the methods and types of a native AOT program of .NET 11 and later, even of a stripped program.
//
// The compiler writes names of methods into the program for the stack traces of exceptions, unless StackTraceSupport
// is off. The names lie in some of the blobs that the program's ReadyToRun header lists:
//
//   - The stack trace map has an entry for each method: the start of the code, the owning type, name and signature,
//     and the arguments of a generic method (dotnet/runtime,
//     src/coreclr/tools/aot/ILCompiler.Compiler/Compiler/DependencyAnalysis/StackTraceMethodMappingNode.cs;
//     StackTraceMetadata.cs of System.Private.StackTraceMetadata reads the map).
//   - The embedded metadata has the types, names and signatures. The format is NativeFormat, not the format of
//     assemblies (src/coreclr/tools/Common/Internal/Metadata/NativeFormat).
//
// Methods that reflection can call, such as Main, are in the invoke map instead. The invoke map names their types by
// the MethodTables, and the type map has the MethodTables.
//
// A program that is built with StackTraceLineNumberSupport also has the source lines of methods.
//
// The runtime's data descriptor leads to the header: RuntimeInstance, the first of the TypeManagers, the
// TypeManager's header (src/coreclr/nativeaot/Runtime/datadescriptor.inc, TypeManager.cpp, inc/ModuleHeaders.h).
//
// A MethodTable begins with the size of its objects, and refers to its base, its definition and its type arguments
// (src/coreclr/nativeaot/Runtime/inc/MethodTable.h). The places of references in objects are in front of the
// MethodTable. The type map has the names of types that are not generic; arrays and generic types are named by their
// parts. The program has names of a few static fields, and no names of other fields. A description of ours
// (internal/contract/embedded) counts for a class if size and references agree. Some classes are the compiler's own,
// with static fields or with the variables of a suspended method.
//
// The blobs are hostile: each length is checked, and the reads and the text for one name are bounded. A method with
// unreadable data has no name.
//
// Known gaps. Code of a generic type or method is in the map with the names of the type's parameters, or without: the
// arguments are not known. For a state machine that is a class, the names do not tell an async method from an
// iterator. Stubs that the compiler makes have no names.
package aot
