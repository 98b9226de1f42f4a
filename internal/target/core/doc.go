// Package core reads ELF core dumps as targets: what the kernel, gdb's gcore and
// .NET's createdump write. It implements what internal/engine asks of a target, so
// that a walk cannot tell a dump from a live process.
//
// # Where bytes come from
//
// First from the dump: p_filesz bytes of a PT_LOAD. What p_memsz has beyond was left
// out; it is not zero, and reading it is an error. Then, for memory that was a file's,
// from the file, as far as the program cannot have changed what it saw of it: the
// segments of an ELF image and the sections of a PE image that are not writable, files
// that were mapped whole, and, where the writer tells (mapping.go), other mappings that
// were not written. Everything else is an error: no zeros are made up.
//
// The dump is read with pread, not mapped: a file that shrinks under a mapping ends the
// reader with SIGBUS, and mapped pages of a large dump count as our memory. Through the
// page cache of the engine the difference is not to be felt (BenchmarkReadMemory).
//
// # Which file is believed
//
// A file is looked for as Options.Exe (the main program), below Options.Sysroot, or at
// its own path, and used only if it is the very file:
//
//   - an ELF image has a GNU build id, which must be the one in the dump;
//   - of any other file every page that the dump has, and that the program does not
//     write, must be in the file (at most maxCompared pages);
//   - of some assemblies the dump has no such page. The kernel and gdb leave out what was
//     not written to, the headers too unless the file may be executed. What they have of an
//     assembly that is compiled ahead of time is its data, where at least half of the
//     relocated words that still lead into the assembly must be those of the file: this tells builds of different
//     code apart (peImage.relocated);
//   - of others, of plain IL mostly, the dump has nothing. Such a file must have the size
//     or the layout of the mappings; and at its own path it must not have been
//     written to since the dump was (its mtime; the ctime is also that of a file that got
//     another name or other permissions). Missing says that it was taken on trust.
//
// # What the writers do
//
//   - The kernel (fs/binfmt_elf.c, fs/coredump.c) writes a PT_LOAD for every mapping,
//     the notes of the thread that died first, and by default (coredump_filter 0x33)
//     all memory that is not a file's or was written to, and the first page of
//     executable files.
//   - gcore (gdb, linux-tdep.c) leaves out the PT_LOAD of what it does not dump, so that
//     only NT_FILE knows the mapping, without its permissions; the offsets there are in
//     bytes (its page size is 1). Its notes are at the end of the file.
//   - createdump (dotnet/runtime, src/coreclr/debug/createdump) writes single pages,
//     and all mappings of files to NT_FILE, without those of deleted files. It renames the
//     mapping of an assembly's header to the assembly's name as the runtime has it, and
//     adds mappings of files for assemblies that are in memory only, with or without a
//     folder (CrashInfo::AddOrReplaceModuleMapping). The bytes after the owner's name in
//     its notes, which should be zero, say what the note is (dumpwriterelf.cpp).
//
// Everything in a dump is hostile: numbers are bounded by the length of the file, and
// nothing makes this package panic.
package core
