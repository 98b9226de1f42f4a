package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"clrsnap"

	"github.com/spf13/cobra"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [PID]",
		Short: "Check what stands in the way of a process's stacks",
		Long: `Without a PID: tell what this run of clrsnap is allowed, and what each verb can do
with that.

With one, also check everything that the stacks of a process need, one thing after the other:
permissions, the runtime's version and shape, its description of itself, its
native modules; and at last take the stacks, which is the proof.

What is not in order comes with the remedy. The exit status is 1 if it prevents
stacks, and 0 if at worst some of them can be incomplete.`,
		Example: `  clrsnap doctor 4242
  clrsnap doctor               what can be done with the rights that are there?`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return onePID(cmd, args)
		},
		ValidArgsFunction: completePID,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.doctor(section{"clrsnap itself", clrsnap.DiagnoseSelf()})
			}
			pid, err := parsePID(args[0])
			if err != nil {
				return err
			}
			a.pid.Store(int64(pid))
			if err := a.wary(pid); err != nil {
				return err
			}
			return a.doctor(section{"clrsnap itself", clrsnap.DiagnoseSelf()}, section{fmt.Sprintf("process %d", pid), clrsnap.Diagnose(context.Background(), pid)})
		},
	}
}

// marks are how a verdict looks, and in which colour.
var marks = map[clrsnap.Verdict][2]string{
	clrsnap.Fine:     {"ok", "32"},
	clrsnap.Degraded: {"warning", "33"},
	clrsnap.Blocking: {"NOT OK", "1;31"},
}

// section are checks of one thing.
type section struct {
	title  string
	checks []clrsnap.Check
}

func (a *app) doctor(sections ...section) error {
	nameWidth := 0
	for _, s := range sections {
		for i := range s.checks {
			nameWidth = max(nameWidth, len(s.checks[i].Name))
		}
	}
	w, color := bufio.NewWriter(a.stdout), a.colors(a.stdout)
	var blocking []string
	for i, s := range sections {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s:\n", s.title)
		blocking = append(blocking, writeChecks(w, s.checks, nameWidth, color)...)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(blocking) > 0 {
		return fmt.Errorf("no stacks can be taken because of: %s", strings.Join(blocking, ", "))
	}
	return nil
}

// writeChecks writes checks, one a line, and returns the names of those that prevent stacks.
func writeChecks(w io.Writer, checks []clrsnap.Check, nameWidth int, color bool) (blocking []string) {
	markWidth := 0
	for _, m := range marks {
		markWidth = max(markWidth, len(m[0]))
	}
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
	return blocking
}
