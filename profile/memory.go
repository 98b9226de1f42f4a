package profile

// Memory says where the memory is that a process has in RAM, in bytes. Each page counts in one part.
type Memory struct {
	RSS     int64 // the sum of the parts
	Managed int64 // of the garbage collector's: objects, and room between them and for more
	Stacks  int64 // of threads, as far as it is known where these are
	Code    int64 // of code that was compiled at run time
	Files   int64 // of mapped files: libraries and assemblies
	Shared  int64 // that other processes can share
	Native  int64 // the rest: malloc, native libraries, and the runtime's own data
}
