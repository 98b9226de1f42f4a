package snapshot

// Memory says where a process's memory in RAM is, in bytes. Each page counts in one part.
type Memory struct {
	RSS     int64 // the sum of the parts
	Managed int64 // of the garbage collector: objects, and free space between and for objects
	Stacks  int64 // of threads, as far as the stacks' places are known
	Code    int64 // of code compiled at run time
	Files   int64 // of mapped files: libraries and assemblies
	Shared  int64 // can be shared with other processes
	Native  int64 // the rest: malloc, native libraries, and the runtime's own data
}

// Since is the growth of each part since an earlier moment.
func (m *Memory) Since(before *Memory) *Memory {
	return &Memory{
		RSS: m.RSS - before.RSS, Managed: m.Managed - before.Managed, Stacks: m.Stacks - before.Stacks,
		Code: m.Code - before.Code, Files: m.Files - before.Files, Shared: m.Shared - before.Shared,
		Native: m.Native - before.Native,
	}
}
