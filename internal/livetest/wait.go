package livetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Await waits until f is true.
func Await(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(Hang); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("after %v it is not true that %s", Hang, what)
		}
	}
}

// Untraced requires that nobody is attached to any thread, and that no thread is stopped.
func Untraced(tb testing.TB, pid int) {
	tb.Helper()
	for _, s := range Held(tb, pid) {
		tb.Error(s)
	}
}

// Held describes the threads that are traced or stopped.
func Held(tb testing.TB, pid int) []string {
	tb.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		tb.Fatal(files, err)
	}
	var out []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		s := string(b)
		stopped := strings.Contains(s, "State:\tt") || strings.Contains(s, "State:\tT")
		if stopped || !strings.Contains(s, "TracerPid:\t0\n") {
			out = append(out, file+":\n"+s)
		}
	}
	return out
}
