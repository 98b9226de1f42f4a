package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"clrsnap"

	"github.com/spf13/cobra"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [PID]",
		Short: "Check whether clrsnap can read a process, and what to do if not",
		Long: `Without a PID: check what this run of clrsnap is permitted to do, and what each verb
can do with that.

With a PID: also check everything that reading the stacks of that process needs:
permissions, the runtime's version and shape, its data descriptor, and its native
modules. At the end take the stacks, which proves that it works.

Each problem comes with its remedy. The exit status is 1 if a problem prevents
stacks, and 0 if at worst some stacks can be incomplete.`,
		Example: `  clrsnap doctor 4242
  clrsnap doctor               what can clrsnap do with the permissions that it has?`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return onePID(cmd, args)
		},
		ValidArgsFunction: completePID,
		RunE: func(cmd *cobra.Command, args []string) error {
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
			self := section{"clrsnap itself", clrsnap.DiagnoseSelf()}
			of := section{fmt.Sprintf("process %d", pid), clrsnap.Diagnose(cmd.Context(), pid)}
			return a.doctor(self, of)
		},
	}
}

// marks are the words for verdicts, and their colours.
var marks = map[clrsnap.Verdict][2]string{
	clrsnap.Fine:     {"ok", "32"},
	clrsnap.Degraded: {"warning", "33"},
	clrsnap.Blocking: {"NOT OK", "1;31"},
}

// section has the checks of clrsnap or of a process.
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
		mark := paint(color, m[1], fmt.Sprintf("%-*s", markWidth, m[0]))
		fmt.Fprintf(w, "%s  %-*s  %s\n", mark, nameWidth, c.Name, oneLineText(c.Detail))
		if c.Remedy != "" {
			fmt.Fprintf(w, "%*s  → %s\n", markWidth+2+nameWidth, "", oneLineText(c.Remedy))
		}
		if c.Verdict == clrsnap.Blocking {
			blocking = append(blocking, c.Name)
		}
	}
	return blocking
}
