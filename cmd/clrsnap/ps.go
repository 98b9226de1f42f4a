package main

import (
	"context"

	"clrsnap"
	"clrsnap/report"
	"clrsnap/snapshot"

	"github.com/spf13/cobra"
)

func newPS(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the .NET processes",
		Long: `List the .NET processes that are visible from here, also in containers.

PROGRAM is the program with its arguments: the assembly, if the dotnet command runs an
assembly. CPU is the average use of a CPU since the start: 250 % is two and a half CPUs.
The present use can be more or less. MEMORY is the memory in RAM (RSS), pages that are
shared with other processes included.

A process that clrsnap may not read is listed with the reason and the remedy, without a
version. Only the names of the threads tell that such a process runs .NET.`,
		Example: `  clrsnap ps
  clrsnap ps --json | jq '.processes[].pid'`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			found, err := a.discover()
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return report.ProcessesJSON(a.stdout, found)
			case len(found) == 0:
				say(a.stderr, "no .NET process is visible here")
				return nil
			}
			return report.Processes(a.stdout, found, a.terminal())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON (docs/json.md)")
	return cmd
}

// discover finds the .NET processes. discover leaves processes that can block the reader for ever to a worker.
func (a *app) discover() ([]snapshot.Found, error) {
	a.patient.Store(true)
	if a.worker != nil {
		return clrsnap.Discover(context.Background())
	}
	found, left, err := clrsnap.DiscoverNonBlocking(context.Background())
	if err == nil && len(left) > 0 {
		err = clrsnap.ErrMayBlock
	}
	return found, err
}
