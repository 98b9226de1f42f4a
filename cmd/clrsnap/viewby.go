package main

import (
	"slices"

	"clrsnap/profile"

	"github.com/spf13/cobra"
)

// byWait is the value of --by.
const byWait = "wait"

// checkBy refuses flags that do not fit --by.
func (f *viewFlags) checkBy(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("by") {
		return nil
	}
	if err := oneOf("by", f.by, byWait); err != nil {
		return err
	}
	for _, flag := range []string{"by-thread", "diff", "sort", "plumbing"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--by and --%s exclude each other", flag)
		}
	}
	waits := func(m profile.Mode) bool { return m == profile.Wall || m.OfWaits() }
	if !slices.ContainsFunc(f.modes(), waits) {
		return usagef("--by wait leaves nothing of --mode %s: %s", f.mode, whyNoState[profile.Waiting.String()])
	}
	return nil
}

// tableOfWaits reports whether the output is the table of waits, or JSON, which has that table.
func (f *viewFlags) tableOfWaits() bool {
	return f.by == byWait && f.file.format == "" && f.callers+f.callees == "" && !f.path
}
