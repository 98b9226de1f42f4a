package testenv

import (
	"bufio"
	"os/exec"
	"testing"
)

// StartSaying starts a program that prints a line and stays, and returns the line. The program is killed at the end of
// the test.
func StartSaying(tb testing.TB, cmd *exec.Cmd) string {
	tb.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		cmd.Process.Kill() // fails if the program has ended
		cmd.Wait()
	})
	said := bufio.NewScanner(stdout)
	said.Scan() // without a line the text is empty, and the caller's check fails
	return said.Text()
}

// StartFed starts a program that prints a line and stays as long as its standard input is open. StartFed returns the
// line. The standard input is open until the end of the test.
func StartFed(tb testing.TB, cmd *exec.Cmd) string {
	tb.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	said := bufio.NewScanner(stdout)
	said.Scan() // likewise
	return said.Text()
}
