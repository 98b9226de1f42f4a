package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"clrsnap/report"

	"github.com/spf13/cobra"
)

// How many rows trees of calls, and paths, have without --top.
const (
	callRows = 40
	pathRows = 100
)

// checkCalls refuses flags that do not fit --callers, --callees and --path.
func (f *viewFlags) checkCalls(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	given, n := "", 0
	for _, flag := range []string{"callers", "callees", "path"} {
		if changed(flag) {
			given = flag
			n++
		}
	}
	switch {
	case n == 0:
		return nil
	case n > 1:
		return usagef("--callers, --callees and --path exclude each other: give one of the three")
	case given != "path" && f.callers+f.callees == "":
		return usagef("--%s: give a part of a function's name, such as %s FILE --%s Thread.Sleep",
			given, cmd.CommandPath(), given)
	case len(f.callers+f.callees) > maxPattern:
		return usagef("--%s: a pattern of %d bytes is too long: give at most %d",
			given, len(f.callers+f.callees), maxPattern)
	case !f.json && (f.output != "" || f.format != ""):
		return usagef("--%s is for the terminal and --json, not for files of other formats", given)
	}
	for _, flag := range []string{"sort", "by-thread", "diff"} {
		if changed(flag) {
			return usagef("--%s and --%s exclude each other", given, flag)
		}
	}
	if !f.json && !changed("top") {
		if f.top = callRows; f.path {
			f.top = pathRows
		}
	}
	return nil
}

// maxPattern bounds a pattern, in bytes.
const maxPattern = 1000

// calls returns the options of a tree of calls; false: none is wanted.
func (f *viewFlags) calls(o report.TopOptions) (report.CallsOptions, bool) {
	switch {
	case f.callers != "":
		return report.CallsOptions{TopOptions: o, Kind: report.Callers, Pattern: f.callers}, true
	case f.callees != "":
		return report.CallsOptions{TopOptions: o, Kind: report.Callees, Pattern: f.callees}, true
	}
	return report.CallsOptions{TopOptions: o, Kind: report.Path}, f.path
}

// writeCalls writes a tree of calls, or the waits. A pattern without a matching function is not a failure to write.
func (a *app) writeCalls(ctx context.Context, out *pendingFile, file string, encode func(io.Writer) error) error {
	var nothing error
	err := a.writeView(ctx, out, func(w io.Writer) error {
		err := encode(w)
		var none *report.NoMatchError
		if errors.As(err, &none) || errors.Is(err, report.ErrOnlyIdle) || errors.Is(err, report.ErrNoStacks) ||
			errors.Is(err, report.ErrNoWaits) {
			nothing = fmt.Errorf("%s: %w", file, err)
		}
		return err
	})
	if nothing != nil {
		return nothing
	}
	return err
}
