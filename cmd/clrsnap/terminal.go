package main

import (
	"fmt"
	"io"
	"os"

	"clrsnap/report"

	"golang.org/x/sys/unix"
)

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// terminalWidth returns the width of f in columns; 0: f is not a terminal.
func terminalWidth(f *os.File) int {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(ws.Col)
}

// colors decides whether to colour the output to f (https://no-color.org).
func (a *app) colors(f *os.File) bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(f)
}

// terminal is standard output.
func (a *app) terminal() report.Terminal {
	return report.Terminal{Color: a.colors(a.stdout), Width: terminalWidth(a.stdout)}
}

// writtenTo is standard output, or a file.
func (a *app) writtenTo(out *pendingFile) report.Terminal {
	if out.path == "-" {
		return a.terminal()
	}
	return report.Terminal{Color: a.color == "always"}
}

// say writes one line to standard error, without control characters from a target or a file.
func say(stderr io.Writer, format string, args ...any) {
	fmt.Fprintf(stderr, "clrsnap: %s\n", report.Clean(fmt.Sprintf(format, args...)))
}
