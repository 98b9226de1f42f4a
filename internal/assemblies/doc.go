// Package assemblies says whose a program's assemblies are: the program's own, a package's, or the framework's. The
// program's deps.json says so, beside the program or in its single-file bundle (dotnet/sdk,
// documentation/specs/runtime-configuration-file.md). Without a deps.json, the folder of the loaded assembly decides.
//
// Both files are the target's, and hostile.
package assemblies
