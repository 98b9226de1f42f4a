// Package assemblies says whose a program's assemblies are: the program's own, a package's, or
// the framework's. The program's deps.json says it, which lies beside the program or in its
// single-file bundle (dotnet/sdk, documentation/specs/runtime-configuration-file.md). Where there is
// none, the folder that an assembly was loaded from says it.
//
// Both files are the target's, and hostile.
package assemblies
