package main

import (
	"os"

	"clrsnap"
	"clrsnap/internal/confine"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// coreFlags are the flags of verbs that read a process or a core dump.
type coreFlags struct {
	core clrsnap.CoreOptions
	dump string // the core dump; empty: a running process
}

func (f *coreFlags) registerCore(fs *pflag.FlagSet) {
	fs.StringVar(&f.dump, "core", "", "the core dump `file` to read instead of a running process")
	fs.StringVar(&f.core.Executable, "exe", "", "with --core: the program's `file`, if the file has moved")
	fs.StringVar(&f.core.Sysroot, "sysroot", "", "with --core: the `folder` with the process's files")
}

// A runningFlag is a flag that means nothing for a core dump, with the reason.
type runningFlag struct{ name, because string }

// pidOrCore requires a PID or a core dump, and refuses flags for the other.
func (f *coreFlags) pidOrCore(cmd *cobra.Command, args []string, running ...runningFlag) error {
	given := cmd.Flags().Changed
	if !given("core") {
		for _, name := range []string{"exe", "sysroot"} {
			if given(name) {
				return usagef("--%s says where the files of a core dump are: give --core as well", name)
			}
		}
		err := onePID(cmd, args)
		if err != nil && len(args) == 1 && isFile(args[0]) {
			return usagef("%q is not a process id: for a core dump write --core %s", args[0], args[0])
		}
		return err
	}
	switch {
	case len(args) > 0:
		return usagef("a process id or --core, not both: unexpected argument %q", args[0])
	case f.dump == "":
		return usagef("--core is empty: give the core dump's file")
	case f.dump == "-":
		return usagef("--core -: a core dump cannot be read from a pipe: save the dump to a file first")
	case given("exe") && f.core.Executable == "":
		return usagef("--exe is empty: give the program's file")
	case given("sysroot") && f.core.Sysroot == "":
		return usagef("--sysroot is empty: give the folder with the process's files")
	}
	for _, r := range running {
		if given(r.name) {
			return usagef("--%s is for running processes: %s", r.name, r.because)
		}
	}
	return nil
}

// coreReads returns the files that the reader of a core dump may read, and the files more. Without --sysroot the
// program's files can be anywhere: the dump names the files.
func (f *coreFlags) coreReads(more ...string) []string {
	reads := append([]string{f.dump, f.core.Executable}, more...)
	if f.core.Sysroot == "" {
		return append(reads, confine.Files()...)
	}
	return append(reads, f.core.Sysroot)
}

func isFile(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}
