package main

import (
	"bufio"
	"fmt"
	"strings"

	"clrsnap"

	"github.com/spf13/cobra"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor PID",
		Short: "Check what stands in the way of a process's stacks",
		Long: `Check everything that the stacks of a process need, one thing after the other:
permissions, the runtime's version and shape, its description of itself, its
native modules; and at last take the stacks, which is the proof.

What is not in order comes with the remedy. The exit status is 1 if it prevents
stacks, and 0 if at worst some of them can be incomplete.`,
		Example:           `  clrsnap doctor 4242`,
		Args:              onePID,
		ValidArgsFunction: completePID,
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := parsePID(args[0])
			if err != nil {
				return err
			}
			a.pid.Store(int64(pid))
			if err := a.wary(pid); err != nil {
				return err
			}
			return a.doctor(clrsnap.Diagnose(pid))
		},
	}
}

// marks are how a verdict looks, and in which colour.
var marks = map[clrsnap.Verdict][2]string{
	clrsnap.Fine:     {"ok", "32"},
	clrsnap.Degraded: {"warning", "33"},
	clrsnap.Blocking: {"NOT OK", "1;31"},
}

func (a *app) doctor(checks []clrsnap.Check) error {
	nameWidth, markWidth := 0, 0
	for i := range checks {
		nameWidth = max(nameWidth, len(checks[i].Name))
	}
	for _, m := range marks {
		markWidth = max(markWidth, len(m[0]))
	}
	w, color := bufio.NewWriter(a.stdout), a.colors(a.stdout)
	var blocking []string
	for i := range checks {
		c := &checks[i]
		m := marks[c.Verdict]
		fmt.Fprintf(w, "%s  %-*s  %s\n", paint(color, m[1], fmt.Sprintf("%-*s", markWidth, m[0])), nameWidth, c.Name, oneLineText(c.Detail))
		if c.Remedy != "" {
			fmt.Fprintf(w, "%*s  → %s\n", markWidth+2+nameWidth, "", oneLineText(c.Remedy))
		}
		if c.Verdict == clrsnap.Blocking {
			blocking = append(blocking, c.Name)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(blocking) > 0 {
		return fmt.Errorf("no stacks can be taken because of: %s", strings.Join(blocking, ", "))
	}
	return nil
}
