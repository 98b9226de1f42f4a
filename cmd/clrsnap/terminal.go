package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"clrsnap/export"

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

// colors decides whether to colour what goes to f (https://no-color.org).
func (a *app) colors(f *os.File) bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(f)
}

// say writes one line to standard error. It cleans what a target or a file has put into it.
func say(stderr io.Writer, format string, args ...any) {
	fmt.Fprintf(stderr, "clrsnap: %s\n", export.Clean(fmt.Sprintf(format, args...)))
}

// oneLineText makes a text from a target safe to print on one line of a terminal.
func oneLineText(s string) string { return export.Clean(strings.Join(strings.Fields(s), " ")) }

// clip cuts s to n columns; n <= 0: not at all.
func clip(s string, n int) string {
	r := []rune(s)
	if n <= 0 || len(r) <= n {
		return s
	}
	return string(r[:max(n-1, 0)]) + "…"
}
