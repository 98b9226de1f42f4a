// Package aot names the methods of a native AOT program of .NET 11 and later, also of one that is stripped.
//
// The compiler writes names of methods into the program for the stack traces of exceptions, unless it is told not to
// (StackTraceSupport). They lie in some of the blobs that the program's ReadyToRun header lists:
//
//   - The stack trace map has an entry for each method: where its code starts, its owning type, name and signature, and
//     the arguments of a generic method (dotnet/runtime, src/coreclr/tools/aot/ILCompiler.Compiler/Compiler/
//     DependencyAnalysis/StackTraceMethodMappingNode.cs; StackTraceMetadata.cs of System.Private.StackTraceMetadata
//     reads it).
//   - The embedded metadata has these types, names and signatures. Its format is NativeFormat, which is another one
//     than that of assemblies (src/coreclr/tools/Common/Internal/Metadata/NativeFormat).
//
// The methods that reflection can call, such as Main, are in the invoke map instead, which names their types by the
// MethodTables, and these are in the type map.
//
// The runtime's data descriptor leads to the header: RuntimeInstance, the first of its TypeManagers, its header
// (src/coreclr/nativeaot/Runtime/datadescriptor.inc, TypeManager.cpp, inc/ModuleHeaders.h).
//
// The blobs are hostile: each length is checked, what is read for one name is bounded, and so is its text. What cannot
// be read has no name.
//
// Known gaps. Code of a generic type or method is in the map with the names of the type's parameters, or without: the
// arguments are not known. Of state machines that are classes it is not told whether they are those of an async method
// or an iterator. Stubs that the compiler makes have no names.
package aot
