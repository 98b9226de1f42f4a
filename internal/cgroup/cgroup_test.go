package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"clrsnap/internal/procfs"
)

// files makes a folder with files.
func files(t *testing.T, group string, contents map[string]string) *folder {
	t.Helper()
	mount := t.TempDir()
	if err := os.MkdirAll(filepath.Join(mount, group), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range contents {
		if err := os.WriteFile(filepath.Join(mount, group, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &folder{mount, group}
}

func TestSecond(t *testing.T) {
	var s State
	s.second(files(t, "/shop", map[string]string{
		"cpu.max":        "150000 100000\n",
		"cpu.stat":       "usage_usec 5\nnr_periods 40\nnr_throttled 30\nthrottled_usec 2500000\n",
		"memory.max":     "1048576\n",
		"memory.high":    "1000000\n",
		"memory.current": "1000000\n",
		"memory.stat":    "anon 5\ninactive_file 4096\n",
		"memory.events":  "low 0\nhigh 30\nmax 120\noom 1\noom_kill 2\n",
		// Without the groups below.
		"memory.events.local": "low 0\nhigh 3\nmax 12\noom 0\noom_kill 0\n",
		"cgroup.events":       "populated 1\nfrozen 1\n",
	}))
	if want := (CPU{"/shop", 1.5, 40, 30, 2500 * time.Millisecond}); len(s.CPU) != 1 || s.CPU[0] != want {
		t.Errorf("%+v", s.CPU)
	}
	want := Memory{Group: "/shop", Max: 1 << 20, High: 1_000_000, Used: 1_000_000, Reclaim: 4096, Hits: 12,
		Slowed: 3, Kills: 2}
	if len(s.Memory) != 1 || s.Memory[0] != want || want.Limit() != want.High {
		t.Errorf("%+v", s.Memory)
	}
	if !s.Frozen {
		t.Error("not frozen")
	}
}

// TestNoLimits: a group without limits does not count.
func TestNoLimits(t *testing.T) {
	var s State
	s.second(files(t, "/",
		map[string]string{"cpu.max": "max 100000\n", "memory.max": "max\n", "memory.current": "5\n"}))
	f := files(t, "/", map[string]string{
		"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n",
		"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "5\n", "freezer.state": "THAWED\n",
	})
	s.firstCPU(f)
	s.firstMemory(f)
	s.firstFreezer(f)
	if len(s.CPU)+len(s.Memory) > 0 || s.Frozen {
		t.Errorf("%+v", s)
	}
}

func TestFirst(t *testing.T) {
	var s State
	f := files(t, "/docker/1234", map[string]string{
		"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n",
		"cpu.stat":              "nr_periods 10\nnr_throttled 4\nthrottled_time 1500000000\n",
		"memory.limit_in_bytes": "209715200\n", "memory.usage_in_bytes": "182001664\n", "memory.failcnt": "7\n",
		"memory.stat":        "inactive_file 1\ntotal_inactive_file 4096\n",
		"memory.oom_control": "oom_kill_disable 0\noom_kill 1\n", "freezer.state": "FROZEN\n",
	})
	s.firstCPU(f)
	s.firstMemory(f)
	s.firstFreezer(f)
	if want := (CPU{"/docker/1234", 0.5, 10, 4, 1500 * time.Millisecond}); len(s.CPU) != 1 || s.CPU[0] != want {
		t.Errorf("%+v", s.CPU)
	}
	want := Memory{Group: "/docker/1234", Max: 200 << 20, Used: 182001664, Reclaim: 4096, Hits: 7, Kills: 1}
	if len(s.Memory) != 1 || s.Memory[0] != want || !s.Frozen {
		t.Errorf("%+v", s)
	}
}

// TestEach: groups above count, too, also in a container whose mount begins with the container's
// own group.
func TestEach(t *testing.T) {
	f := files(t, "/a/b", map[string]string{"cgroup.procs": "1\n"})
	if err := os.WriteFile(filepath.Join(f.mount, "cgroup.procs"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	groups := func(root, group string) (out []string) {
		r := Reader{mounts: map[string][]mount{"": {{f.mount, root}}}}
		r.each("", group, func(f *folder) { out = append(out, f.group) })
		return out
	}
	if got := groups("/", "/a/b"); len(got) != 3 || got[0] != "/a/b" || got[2] != "/" {
		t.Errorf("%q", got)
	}
	if got := groups("/docker/1234", "/docker/1234"); len(got) != 1 || got[0] != "/" {
		t.Errorf("%q", got)
	}
	if got := groups("/docker/1234", "/docker/1234/a/b"); len(got) != 3 || got[0] != "/a/b" {
		t.Errorf("%q", got)
	}
	// Groups that are not mounted here: of another container, or outside of our cgroup namespace.
	for _, other := range [][2]string{
		{"/docker/1234", "/docker/5678"}, {"/docker/1234", "/docker/12345"}, {"/docker/1234", "/"}, {"/", "/../other"},
		{"/", "/.."}, {"/..", "/"}, {"/..", "/../.."}, {"/", "/gone"},
	} {
		if got := groups(other[0], other[1]); got != nil {
			t.Errorf("%s at %s: %q", other[1], other[0], got)
		}
	}
}

func TestSince(t *testing.T) {
	before := State{CPU: []CPU{{Group: "/a", Periods: 10, Throttled: 2, Stood: time.Second}},
		Memory: []Memory{{Group: "/a", Hits: 3}}}
	now := State{
		CPU:    []CPU{{Group: "/a", Periods: 15, Throttled: 5, Stood: 3 * time.Second}, {Group: "/new", Periods: 4}},
		Memory: []Memory{{Group: "/a", Hits: 8, Kills: 1}},
	}
	d := now.Since(&before)
	if len(d.CPU) != 1 || d.CPU[0].Periods != 5 || d.CPU[0].Throttled != 3 || d.CPU[0].Stood != 2*time.Second {
		t.Errorf("%+v", d.CPU)
	}
	if len(d.Memory) != 1 || d.Memory[0].Hits != 5 || d.Memory[0].Kills != 1 {
		t.Errorf("%+v", d.Memory)
	}
	back := before.Since(&now) // another group has the name by now
	if len(back.CPU) != 0 || back.Memory[0].Hits != 0 {
		t.Errorf("%+v", back)
	}
}

// TestState: the state of this process can be read.
func TestState(t *testing.T) {
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if _, err := NewReader(self).State(); err != nil {
		t.Error(err)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte("150000 100000\n"))
	f.Add([]byte("nr_throttled 12\nx 18446744073709551615\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if q := parseQuota(b); q < 0 {
			t.Error(q)
		}
		for _, n := range parseCounts(b) {
			if d := span(n, time.Microsecond); d < 0 {
				t.Error(d)
			}
		}
		if n, ok := parseNumber(b); ok && n < 0 {
			t.Error(n)
		}
	})
}
