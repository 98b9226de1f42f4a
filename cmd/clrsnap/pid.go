package main

import (
	"context"
	"fmt"
	"strconv"

	"clrsnap"
	"clrsnap/internal/display"

	"github.com/spf13/cobra"
)

// onePID requires exactly one argument, a process id.
func onePID(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("no process: give a process id, for example %s 4242; clrsnap ps lists .NET processes",
			cmd.CommandPath())
	case len(args) > 1 && groupings[args[1]] != 0 || len(args) > 1 && args[1] == "auto":
		return usagef("write --group=%s, with an equals sign", args[1])
	case len(args) > 1:
		return usagef("unexpected argument %q after the first process id: see %s --help", args[1], cmd.CommandPath())
	}
	_, err := parsePID(args[0])
	return err
}

func parsePID(s string) (int, error) {
	pid, err := strconv.ParseInt(s, 10, 32)
	if err != nil || pid <= 0 {
		return 0, usagef("%q is not a process id: clrsnap ps lists .NET processes", s)
	}
	return int(pid), nil
}

// completePID offers the .NET processes to the shell.
func completePID(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, _, err := clrsnap.DiscoverNonBlocking(context.Background())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for i := range found {
		out = append(out, fmt.Sprintf("%d\t%s", found[i].PID, display.OneLine(found[i].Command)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// complete offers the values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag does not exist
	}
}
