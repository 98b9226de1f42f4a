package main

import (
	"context"

	"clrsnap"
	"clrsnap/report"

	"github.com/spf13/cobra"
)

func newPS(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the .NET processes",
		Long: `List the .NET processes that are visible from here, including those in containers.

PROGRAM is what runs and its arguments: the assembly, where the dotnet command runs one.
CPU is how much of one CPU the process has used on average since it started: 250 % is two
and a half CPUs. What it uses now can be more or less. MEMORY is what it has in RAM (RSS),
pages that it shares with other processes included.

A process that clrsnap may not read is listed with the reason and the remedy. Its
version is unknown: it was recognised by the names of its threads.`,
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
				return report.ProcessesJSON(a.stdout, listed(found))
			case len(found) == 0:
				say(a.stderr, "no .NET process is visible here")
				return nil
			}
			return report.Processes(a.stdout, listed(found), a.table())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON (docs/json.md)")
	return cmd
}

// discover finds the .NET processes. discover leaves processes that can block the reader for ever to a worker.
func (a *app) discover() ([]clrsnap.Found, error) {
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

// listed turns the processes into package report's form.
func listed(found []clrsnap.Found) []report.Process {
	out := make([]report.Process, len(found))
	for i := range found {
		p := &found[i]
		out[i] = report.Process{
			PID: p.PID, User: p.User, Command: p.Command, Program: p.Program, Arguments: p.Arguments,
			Threads: p.Threads, Age: p.Age, CPU: p.CPU, RSS: p.RSS, Runtime: p.Runtime,
		}
		if p.Err != nil {
			out[i].Error = p.Err.Error()
		}
	}
	return out
}
