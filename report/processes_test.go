package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Minute - 1: "59s", time.Minute: "1m 0s", time.Hour - 1: "59m 59s",
		time.Hour: "1h 0m", 47 * time.Hour: "1d 23h", 400 * 24 * time.Hour: "400d 0h",
	} {
		if got := ageText(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func processTable(t *testing.T, width int, list ...snapshot.Found) []string {
	t.Helper()
	var b bytes.Buffer
	if err := Processes(&b, list, Terminal{Width: width}); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// TestProcessesNarrow: where there is little room, columns go before the program.
func TestProcessesNarrow(t *testing.T) {
	p := snapshot.Found{
		PID: 1234567, User: "postgres-operator", Program: "Shop.Orders.Api.dll", Arguments: "--urls http://*:80",
		Threads: 1204, Age: 26 * time.Hour, CPU: 99 * time.Hour, RSS: 3 << 30,
		Runtime: snapshot.Runtime{Version: "10.0.9", Shape: "self-contained"},
	}
	for width, gone := range map[int]string{
		0: "", 120: "", 110: "SHAPE", 90: "SHAPE USER", 80: "SHAPE USER", 70: "SHAPE USER THREADS",
		20: "SHAPE USER THREADS",
	} {
		lines := processTable(t, width, p)
		for _, c := range columns {
			want := !strings.Contains(gone, c.title)
			if shown := strings.Contains(lines[0]+" ", c.title+" "); shown != want && width > 60 {
				t.Errorf("%d columns: %s is shown: %v\n%s", width, c.title, shown, lines[0])
			}
		}
		for _, line := range lines {
			if width > 0 && display.Width(line) > width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
		if width >= 70 && !strings.Contains(lines[1], p.Program) {
			t.Errorf("%d columns: %q", width, lines[1])
		}
	}
}

// TestProcessesUnknown: facts that the kernel does not tell, or the ticks are too coarse for.
func TestProcessesUnknown(t *testing.T) {
	young := snapshot.Found{PID: 2, Threads: 1, Age: time.Second / 2, CPU: time.Second}
	lines := processTable(t, 0, snapshot.Found{PID: 1, Command: "a b"}, young)
	for i, want := range []string{"1 - - - - - - - a b", "2 - - - 0s - 0 B 1 -"} {
		if got := strings.Join(strings.Fields(lines[i+1]), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var b bytes.Buffer
	err := ProcessesJSON(&b, []snapshot.Found{{PID: 1}, {PID: 2, Threads: 1}})
	const want = `{"processes":[{"pid":1},{"pid":2,"ageSeconds":0,"cpuSeconds":0,"rssBytes":0,"threads":1}]}` + "\n"
	if err != nil || b.String() != want {
		t.Errorf("%s, %v", b.String(), err)
	}
}

// TestProcessesHostile: no name of a process reaches the terminal unchanged.
func TestProcessesHostile(t *testing.T) {
	evil := "a\x1b[2J\r\nb\u202e\xff\t" + strings.Repeat("y", 1<<20)
	p := snapshot.Found{
		PID: 1, User: evil, Program: evil, Arguments: evil, Threads: 1, Err: errors.New(evil),
		Runtime: snapshot.Runtime{Version: evil, Shape: evil},
	}
	for _, width := range []int{0, 80} {
		lines := processTable(t, width, p)
		if len(lines) != 3 {
			t.Fatalf("%d lines", len(lines))
		}
		for _, line := range lines {
			if strings.ContainsAny(line, "\x1b\r\t\u202e") || !utf8.ValidString(line) {
				t.Errorf("%.200q", line)
			}
		}
	}
	var b bytes.Buffer
	err := ProcessesJSON(&b, []snapshot.Found{p})
	if err != nil || !json.Valid(b.Bytes()) || bytes.ContainsAny(b.Bytes(), "\x1b\r") {
		t.Errorf("%v: %.200q", err, b.String())
	}
}
