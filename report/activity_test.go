package report

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestActivityLines: what ended is told with its certainty, and memory with its growth and the control group's limit.
func TestActivityLines(t *testing.T) {
	a := profile.Activity{
		RequestsInFlight: -1, RequestsEnded: -1, GCShare: -1, ExceptionsPerSecond: -1, Descriptors: -1,
		TasksInFlight: 1204, TasksEnded: 80, TasksOver: 3 * time.Second,
		Memory:      &snapshot.Memory{RSS: 632 << 20, Managed: 32 << 20, Native: 600 << 20},
		MemoryGrown: &snapshot.Memory{RSS: 6 << 20, Native: 12 << 20, Managed: -6 << 20, Stacks: 1 << 10},
		MemoryOver:  3100 * time.Millisecond,
		MemoryLimit: &profile.MemoryLimit{Limit: 1 << 30, Used: 768 << 20},
	}
	want := []string{
		"Threads: 0 running, 0 waiting, 0 idle",
		"Async methods: 1,204 in flight; of those in flight 3.0 s before, at least 80 ended",
		"Memory: 632 MiB in RAM: 600 MiB native, 32.0 MiB managed heap",
		"Memory changed in 3.1 s: +12.0 MiB native, −6.00 MiB managed heap",
		"Memory limit: the control group uses 768 MiB of 1.00 GiB (75.0 %)",
	}
	if got := activityLines(&a); !slices.Equal(got, want) {
		t.Errorf("%q\n%q", got, want)
	}
	a.TasksExact = true
	if got := activityLines(&a)[1]; got != "Async methods: 1,204 in flight; of those in flight 3.0 s before, 80 ended" {
		t.Error(got)
	}
	if a.TasksEnded = -1; activityLines(&a)[1] != "Async methods: 1,204 in flight" {
		t.Error(activityLines(&a)[1])
	}
}

// TestActivityJSON: the memory's parts and the limit are in one object, and unknown numbers are left out.
func TestActivityJSON(t *testing.T) {
	a := profile.Activity{
		RequestsInFlight: -1, RequestsEnded: -1, GCShare: -1, ExceptionsPerSecond: -1, Descriptors: -1,
		TasksInFlight: 7, TasksEnded: 0, TasksExact: true, TasksOver: 2 * time.Second,
		Memory:      &snapshot.Memory{RSS: 5, Native: 3},
		MemoryGrown: &snapshot.Memory{Native: -2}, MemoryOver: time.Second,
		MemoryLimit: &profile.MemoryLimit{Limit: 9, Used: 8},
	}
	got, err := json.Marshal(jsonActivityOf(&a))
	want := `{"memory":{"rss":5,"managed":0,"native":3,"stacks":0,"code":0,"files":0,"shared":0,` +
		`"grown":{"rss":0,"managed":0,"native":-2,"stacks":0,"code":0,"files":0,"shared":0},"grownOverSeconds":1,` +
		`"limit":9,"groupUsed":8},"threads":{"running":0,"waiting":0,"idle":0},"tasksInFlight":7,"tasksEnded":0,` +
		`"tasksExact":true,"tasksOverSeconds":2}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v\n%s", got, err, want)
	}
}
