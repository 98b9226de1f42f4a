package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"clrsnap"

	"github.com/spf13/cobra"
)

func newPS(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the .NET processes",
		Long: `List the .NET processes that are visible from here, including those in containers.

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
			if asJSON {
				return psJSON(a.stdout, found)
			}
			return a.psText(found)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON (docs/json.md)")
	return cmd
}

// discover finds the .NET processes. It leaves those that can block it for ever to a worker.
func (a *app) discover() ([]clrsnap.Found, error) {
	a.patient.Store(true)
	if a.worker != nil {
		return clrsnap.Discover(context.Background())
	}
	found, left, err := clrsnap.DiscoverWary(context.Background())
	if err == nil && len(left) > 0 {
		err = clrsnap.ErrMayBlock
	}
	return found, err
}

type psRuntime struct {
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Shape   string `json:"shape,omitempty"`
}

type psProcess struct {
	PID     int        `json:"pid"`
	User    string     `json:"user,omitempty"`
	Command string     `json:"command,omitempty"`
	Runtime *psRuntime `json:"runtime,omitempty"`
	Error   string     `json:"error,omitempty"`
}

func psJSON(f *os.File, found []clrsnap.Found) error {
	out := struct {
		Processes []psProcess `json:"processes"`
	}{make([]psProcess, len(found))}
	for i := range found {
		p := &found[i]
		out.Processes[i] = psProcess{PID: p.PID, User: p.User, Command: p.Command}
		if r := p.Runtime; r.Shape != "" {
			out.Processes[i].Runtime = &psRuntime{r.Version, r.Path, r.Shape}
		}
		if p.Err != nil {
			out.Processes[i].Error = oneLine(p.Err)
		}
	}
	enc := json.NewEncoder(f)
	enc.SetEscapeHTML(false)
	return enc.Encode(&out)
}

// psText prints a table. The error of a process is on a line of its own below it.
func (a *app) psText(found []clrsnap.Found) error {
	if len(found) == 0 {
		say(a.stderr, "no .NET process is visible here")
		return nil
	}
	rows := [][]string{{"PID", "USER", "VERSION", "SHAPE", "COMMAND"}}
	for i := range found {
		p := &found[i]
		rows = append(rows, []string{
			strconv.Itoa(p.PID), oneLineText(p.User),
			orDash(p.Runtime.Version), orDash(p.Runtime.Shape), oneLineText(p.Command),
		})
	}
	var widths [5]int
	for _, row := range rows {
		for c, cell := range row {
			widths[c] = max(widths[c], len([]rune(cell)))
		}
	}
	w := bufio.NewWriter(a.stdout)
	color, columns := a.colors(a.stdout), terminalWidth(a.stdout)
	for i, row := range rows {
		var b strings.Builder
		fmt.Fprintf(&b, "%*s", widths[0], row[0])
		for c := 1; c < len(row)-1; c++ {
			fmt.Fprintf(&b, "  %-*s", widths[c], row[c])
		}
		line := b.String() + "  "
		line += row[len(row)-1]
		line = clip(line, columns)
		if i == 0 {
			line = paint(color, "1", line)
		}
		fmt.Fprintln(w, line)
		if i > 0 && found[i-1].Err != nil {
			why := fmt.Sprintf("%*s  ✗ %s", widths[0], "", oneLineText(found[i-1].Err.Error()))
			fmt.Fprintln(w, paint(color, "31", why))
		}
	}
	return w.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return oneLineText(s)
}

func paint(color bool, style, s string) string {
	if !color {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}
