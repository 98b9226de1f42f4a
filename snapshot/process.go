package snapshot

import "fmt"

// Process describes a process.
type Process struct {
	PID     int
	Command string // command line, arguments separated by spaces
	Runtime Runtime
	Core    *Core // the core dump that the process was read from; nil: a running process
}

// Core is a core dump.
type Core struct {
	Path   string
	Writer string  // "kernel", "createdump", or "gcore": gdb, or a program that writes dumps as gdb does
	Signal *Signal // the signal that ended the process; nil: no signal did, or the signal is not known
	// Missing has a sentence for each thing that could be read neither from the dump nor from the process's files.
	Missing []string
}

// Signal is a signal that ended a process.
type Signal struct {
	Number     int
	Name       string // such as "SIGSEGV"
	Reason     string // what the signal's code means, for example "address not mapped"; may be empty
	Address    uint64 // the address that could not be accessed, or executed
	HasAddress bool   // Address is known; it can be 0
}

// String describes s: "SIGSEGV (address not mapped: 0x10)".
func (s *Signal) String() string {
	detail := s.Reason
	if s.HasAddress {
		if detail != "" {
			detail += ": "
		}
		detail += fmt.Sprintf("%#x", s.Address)
	}
	if detail == "" {
		return s.Name
	}
	return s.Name + " (" + detail + ")"
}

// Runtime describes the .NET runtime inside a process.
type Runtime struct {
	Version string // for example "10.0.8"
	Path    string // the file that holds the runtime, as the target sees it
	Shape   string // "shared", "self-contained" or "single-file"
}
