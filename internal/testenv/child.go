package testenv

import (
	"bufio"
	"os/exec"
	"testing"
)

// StartSaying starts a program that says something and stays, and returns the first line of it.
// The program is killed at the end of the test.
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
		cmd.Process.Kill() // fails if it has ended
		cmd.Wait()
	})
	said := bufio.NewScanner(stdout)
	said.Scan() // what it has not said is not what is expected
	return said.Text()
}

// StartFed starts a program that says something and stays as long as its standard input is open, which is until the end
// of the test. It returns the first line that the program says.
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
