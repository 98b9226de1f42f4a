package testenv

import (
	"io"
	"time"
)

// Ask gives the program a command and returns the answer. Only one command may run at a time.
func (a *App) Ask(command string) []string {
	a.tb.Helper()
	if _, err := io.WriteString(a.stdin, command+"\n"); err != nil {
		a.tb.Fatalf("asking %s for %s: %v\n%s", a, command, err, a.Stderr())
	}
	select {
	case answer := <-a.answers:
		return answer
	case <-a.ended:
		a.tb.Fatalf("%s ended before it answered %q\n%s", a, command, a.Stderr())
	case <-time.After(Hang):
		a.tb.Fatalf("%s does not answer %q\n%s", a, command, a.Stderr())
	}
	panic("unreachable")
}
