package main

import (
	"fmt"
	"strings"

	"clrsnap"
	"clrsnap/report"
	"clrsnap/snapshot"

	"github.com/spf13/cobra"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [PID]",
		Short: "Check whether clrsnap can read a process, and name the remedy if not",
		Long: `Without a PID: check the permissions of this run of clrsnap, and say which verbs work with
these permissions.

With a PID: also check everything that stacks of the process need: permissions, the
runtime's version and shape, its data descriptor, and its native modules. At the end take
the stacks, as a proof.

Each problem comes with its remedy. The exit status is 1 if a problem prevents stacks, and
0 if at worst some stacks can be incomplete.`,
		Example: `  clrsnap doctor 4242
  clrsnap doctor               what may clrsnap do?`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return onePID(cmd, args)
		},
		ValidArgsFunction: completePID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.doctor(report.Section{Title: "clrsnap itself", Checks: clrsnap.DiagnoseSelf()})
			}
			pid, err := parsePID(args[0])
			if err != nil {
				return err
			}
			a.pid.Store(int64(pid))
			if err := a.mayBlock(pid); err != nil {
				return err
			}
			self := report.Section{Title: "clrsnap itself", Checks: clrsnap.DiagnoseSelf()}
			of := report.Section{
				Title: fmt.Sprintf("process %d", pid), Checks: clrsnap.Diagnose(cmd.Context(), pid),
			}
			return a.doctor(self, of)
		},
	}
}

func (a *app) doctor(sections ...report.Section) error {
	if err := report.Checks(a.stdout, sections, a.terminal()); err != nil {
		return err
	}
	var blocking []string
	for _, s := range sections {
		for _, c := range s.Checks {
			if c.Outcome == snapshot.Blocking {
				blocking = append(blocking, c.Name)
			}
		}
	}
	if len(blocking) > 0 {
		return fmt.Errorf("no stacks can be taken because of: %s", strings.Join(blocking, ", "))
	}
	return nil
}
