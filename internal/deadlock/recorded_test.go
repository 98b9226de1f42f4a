package deadlock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/moments"
	"clrsnap/internal/target/recorded"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// TestRecordedDeadlocks: the deadlocks of a recorded program are the program's own.
func TestRecordedDeadlocks(t *testing.T) { moments.Each(t, "deadlocks", checkDeadlocks) }

// TestRecordedDeadlocksSuspended is TestRecordedDeadlocks for methods that the runtime itself has suspended.
func TestRecordedDeadlocksSuspended(t *testing.T) {
	moments.Each(t, "deadlocks-suspended", checkDeadlocks)
}

// checkDeadlocks compares with the program's notes: what a set is, its members, its victims, and "ended".
func checkDeadlocks(t *testing.T, m *recorded.Moment) {
	s := moments.At[*snapshot.Snapshot](t, m, moments.Waits)
	want := map[string]string{}
	for _, line := range m.Truths {
		f := strings.Split(line, "\t")
		members := strings.Fields(f[1])
		set, _, _ := strings.Cut(members[0], "-")
		switch f[0] {
		case "likely": // the members are methods, too
			want["likely "+set] = fmt.Sprintf("< %v", sorted(strings.Fields(f[2])))
		case "deadlock", "suspected":
			victims := sorted(strings.Fields(f[2]))
			want[set] = strings.TrimSpace(fmt.Sprintf("%s %v < %v %s", f[0], sorted(members), victims, f[3]))
		}
	}
	g, got := s.WaitGraph(), map[string]string{}
	for what, list := range map[string][]snapshot.Deadlock{"deadlock": g.Deadlocks, "suspected": g.Suspected} {
		for _, d := range list {
			in := threadNames(s, d.Threads)
			set, _, _ := strings.Cut(in[0], "-")
			text := fmt.Sprintf("%s %v < %v", what, in, threadNames(s, d.Victims))
			if d.Ended {
				text += " ended"
			}
			got[set] += text
		}
	}
	for i := range g.Likely {
		d := &g.Likely[i]
		set := likelySet(s, slices.Concat(d.Members, d.Others))
		got["likely "+set] += fmt.Sprintf("< %v", threadNames(s, d.Victims))
		if text := report.LikelyText(s, d); !strings.Contains(strings.ToLower(text), set) {
			t.Errorf("%s: %s", set, text)
		}
	}
	if len(want) < 30 {
		t.Fatalf("only %d sets", len(want))
	}
	moments.Compare(t, got, want)
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func threadNames(s *snapshot.Snapshot, threads []int) (out []string) {
	for _, i := range threads {
		out = append(out, s.Threads[i].Name)
	}
	return sorted(out)
}

// likelySet is the set of a thread among nodes. Without a thread, the set is named after the class of a method.
func likelySet(s *snapshot.Snapshot, nodes []snapshot.WaitNode) string {
	for _, p := range nodes {
		if p.Thread >= 0 {
			if set, _, ok := strings.Cut(s.Threads[p.Thread].Name, "-"); ok {
				return set
			}
		}
	}
	for _, p := range nodes {
		if p.Thread < 0 {
			name := strings.TrimPrefix(s.Awaits[p.Await].Frames[0].Short, "Permits.")
			if class, _, _ := strings.Cut(name, "."); class != "SemaphoreSlim" && class != "AsyncLock" {
				return strings.ToLower(class)
			}
		}
	}
	return ""
}
