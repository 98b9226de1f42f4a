// Package core reads ELF core dumps as targets: the dumps of the kernel, of gdb's gcore and of
// .NET's createdump. It implements internal/engine's requirements for a target, so a walk of a
// dump is the same as a walk of a live process.
//
// # Where bytes come from
//
// First from the dump: p_filesz bytes of a PT_LOAD. The rest, up to p_memsz, was left out. The
// rest is not zero, and reading it is an error. Where the dump is cut off, the bytes behind the end
// count as left out.
//
// Then, for memory that was mapped from a file, from the file, where the program cannot have
// changed the memory: the segments of an ELF image and the sections of a PE image that are not
// writable, files that were mapped whole, and, where the writer shows it (mapping.go), other
// mappings without writes. The files below /.dotnet/shm/, which .NET processes share, change
// along with the processes, so they are never read. Everything else is an error: missing memory
// never reads as zeros.
//
// The dump is read with pread, not mapped: if a mapped file shrinks, its reader dies of SIGBUS,
// and mapped pages of a large dump count as our memory. With the page cache of the engine pread
// is not noticeably slower (BenchmarkReadMemory).
//
// # Which file is used
//
// A file is searched for at Options.Exe (the main program), below Options.Sysroot, or at its own
// path. It is used only if it is the very file:
//
//   - an ELF image has a GNU build id, which must equal the build id in the dump;
//   - for any other file, every page that the dump has, and that the program does not write, must
//     be in the file (at most maxCompared pages);
//   - for some assemblies the dump has no such page. The kernel and gdb leave out unwritten
//     memory, and also the headers, unless the file may be executed. For an assembly compiled
//     ahead of time, they dump the data. At least half of the relocated words there that still
//     lead into the assembly must be the file's words: this distinguishes builds of different
//     code (peImage.relocated);
//   - for other assemblies, mostly plain IL, the dump has nothing. Such a file must have the size
//     or the layout of the mappings; and at its own path the file must be older than the dump
//     (its mtime; the ctime also changes with the file's name or permissions). Missing reports
//     that the file was taken on trust, and Proved that the file's names are not certain.
//
// # What the writers do
//
//   - The kernel (fs/binfmt_elf.c, fs/coredump.c) writes a PT_LOAD for every mapping, the notes
//     of the thread that died first, and by default (coredump_filter 0x33) all memory that is not
//     a file's or was written to, and the first page of executable files.
//   - gcore (gdb, linux-tdep.c) leaves out the PT_LOAD of memory that it does not dump, so only
//     NT_FILE knows the mapping, without its permissions; the offsets there are in bytes (its
//     page size is 1). Its notes are at the end of the file.
//   - createdump (dotnet/runtime, src/coreclr/debug/createdump) writes single pages, and all
//     mappings of files to NT_FILE, without the mappings of deleted files. It renames the mapping
//     of an assembly's header to the runtime's name of the assembly. It also adds mappings of
//     files for assemblies that are in memory only, with or without a folder
//     (CrashInfo::AddOrReplaceModuleMapping). The bytes after the owner's name in its notes,
//     which should be zero, give the kind of the note (dumpwriterelf.cpp).
//
// Everything in a dump is hostile: the length of the file bounds all numbers, and nothing makes
// this package panic.
package core
