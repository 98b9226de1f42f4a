// Package cgroup reads the kernel's data on the control groups of a process: the limits of CPU time
// and memory, and the effects of the limits. The package knows version 2 and the hierarchies of
// version 1 (cgroups(7)).
//
// A limit binds all groups below the limit's group. So the groups above a process's group count,
// too, as far as they are visible here: in a container the outer groups are not.
//
// Sources (Linux): Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst,
// cgroup-v1/freezer-subsystem.rst; Documentation/scheduler/sched-bwc.rst.
package cgroup

import (
	"bytes"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/foreign"
	"clrsnap/internal/procfs"
)

// State is the state of a process's groups at one moment. Counters never go back.
type State struct {
	CPU    []CPU    // of each group with a quota, the innermost first
	Memory []Memory // of each group with a limit, the innermost first
	Frozen bool     // the freezer keeps all processes of the group from running
}

// CPU is the use of CPU time by a group with a quota.
type CPU struct {
	Group     string        // path, as the mount shows the group
	Quota     float64       // CPUs; 0: unknown
	Periods   uint64        // periods in which processes of the group wanted to run
	Throttled uint64        // periods in which the quota was used up
	Stood     time.Duration // how long processes had to wait then, all CPUs together
}

// Memory is the use of memory by a group with a limit, in bytes.
type Memory struct {
	Group   string
	Max     int64 // the hard limit; 0: none
	High    int64 // above High processes are slowed down; 0: no bound
	Used    int64
	Reclaim int64  // of Used: file pages that are given back without harm
	Hits    uint64 // how often the limit was reached
	Slowed  uint64 // how often processes were slowed down above High
	Kills   uint64 // killed processes, of groups below as well
}

// maxDepth bounds the levels of groups that are read, maxFile the bytes that are read of each file.
const (
	maxDepth = 16
	maxFile  = 64 << 10
)

// Reader finds the groups of one process.
type Reader struct {
	of     procfs.Dir
	mounts map[string][]mount // by controller, and "" for version 2
}

// mount is the mount of a hierarchy, or of a part of a hierarchy.
type mount struct {
	place string
	root  string // the group at the mount: a path as in /proc/PID/cgroup
}

// NewReader returns a Reader for a process. The files are read in the mounts of our own mount
// namespace.
func NewReader(of procfs.Dir) *Reader {
	r := &Reader{of: of, mounts: map[string][]mount{}}
	self, err := procfs.Self()
	if err != nil {
		return r
	}
	defer self.Close()
	b, err := self.ReadFile("mountinfo")
	if err != nil {
		return r
	}
	_ = procfs.ParseMounts(b, func(m procfs.Mount) {
		switch m.Type {
		case "cgroup2":
			r.add("", &m)
		case "cgroup":
			// named after its controllers (systemd, cgroups(7))
			for _, c := range strings.Split(path.Base(m.Place), ",") {
				r.add(c, &m)
			}
		}
	})
	return r
}

func (r *Reader) add(controller string, m *procfs.Mount) {
	r.mounts[controller] = append(r.mounts[controller], mount{m.Place, m.Root})
}

// State reads the groups as they are now. Unreadable parts are missing in the result; the error
// says that nothing can be read.
func (r *Reader) State() (State, error) {
	groups, err := r.of.Cgroups()
	if err != nil {
		return State{}, err
	}
	var s State
	for _, g := range groups {
		if g.Controllers == nil {
			r.each("", g.Path, s.second)
			continue
		}
		for _, c := range g.Controllers {
			switch c {
			case "cpu":
				r.each(c, g.Path, s.firstCPU)
			case "memory":
				r.each(c, g.Path, s.firstMemory)
			case "freezer":
				r.each(c, g.Path, s.firstFreezer)
			}
		}
	}
	return s, nil
}

// each calls add with a group and the groups above, from the inside out.
func (r *Reader) each(controller, group string, add func(*folder)) {
	for _, m := range r.mounts[controller] {
		at, ok := m.below(group)
		if !ok || !(&folder{m.place, at}).has("cgroup.procs") {
			continue
		}
		for range maxDepth {
			add(&folder{m.place, at})
			if at == "/" {
				return
			}
			at = path.Dir(at)
		}
		return
	}
}

// below returns the path of a group below the mount; false: the group is not there. The mount of a
// container begins with the container's own group. Both paths are relative to the root of our
// cgroup namespace. Paths outside of the namespace begin with "/.." (cgroup_namespaces(7)).
func (m *mount) below(group string) (string, bool) {
	rest, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
	if !ok || rest != "" && rest[0] != '/' || rest == "/.." || strings.HasPrefix(rest, "/../") {
		return "", false
	}
	return path.Clean("/" + rest), true
}

// folder is the folder of a group.
type folder struct{ mount, group string }

func (f *folder) read(name string) ([]byte, bool) {
	file, err := foreign.Open(path.Join(f.mount, f.group, name))
	if err != nil {
		return nil, false
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxFile))
	return b, err == nil
}

func (f *folder) has(name string) bool {
	file, err := foreign.Open(path.Join(f.mount, f.group, name))
	if err != nil {
		return false
	}
	file.Close()
	return true
}

// number reads a file with one number; false: the file has no number, or has "max".
func (f *folder) number(name string) (int64, bool) {
	b, ok := f.read(name)
	if !ok {
		return 0, false
	}
	return parseNumber(b)
}

func parseNumber(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil && n >= 0
}

// counts reads a file with a name and a number on each line.
func (f *folder) counts(name string) map[string]uint64 {
	b, ok := f.read(name)
	if !ok {
		return nil
	}
	return parseCounts(b)
}

// parseCounts parses lines like "nr_throttled 12".
func parseCounts(b []byte) map[string]uint64 {
	out := map[string]uint64{}
	for line := range bytes.Lines(b) {
		fields := bytes.Fields(line)
		if len(fields) != 2 {
			continue
		}
		if n, err := strconv.ParseUint(string(fields[1]), 10, 64); err == nil {
			out[string(fields[0])] = n
		}
	}
	return out
}

// second adds a group of version 2.
func (s *State) second(f *folder) {
	if b, ok := f.read("cpu.max"); ok {
		if quota := parseQuota(b); quota > 0 {
			n := f.counts("cpu.stat")
			s.CPU = append(s.CPU, CPU{
				Group: f.group, Quota: quota, Periods: n["nr_periods"], Throttled: n["nr_throttled"],
				Stood: span(n["throttled_usec"], time.Microsecond),
			})
		}
	}
	if f.counts("cgroup.events")["frozen"] == 1 {
		s.Frozen = true
	}
	most, _ := f.number("memory.max")
	high, _ := f.number("memory.high")
	used, ok := f.number("memory.current")
	if most == 0 && high == 0 || !ok {
		return
	}
	n := f.counts("memory.events")
	local := f.counts("memory.events.local") // without the groups below; since Linux 5.2
	if local == nil {
		local = n
	}
	s.Memory = append(s.Memory, Memory{
		Group: f.group, Max: most, High: high, Used: used, Reclaim: int64(f.counts("memory.stat")["inactive_file"]),
		Hits: local["max"], Slowed: local["high"], Kills: n["oom_kill"],
	})
}

// Limit is the memory that processes of the group can have without being slowed down, or killed.
func (m *Memory) Limit() int64 {
	if m.High > 0 && (m.Max == 0 || m.High < m.Max) {
		return m.High
	}
	return m.Max
}

// Left is the memory that processes of the group may still use, in bytes. File pages are given back without harm.
func (m *Memory) Left() int64 { return m.Limit() - (m.Used - m.Reclaim) }

// LeastMemory is the group in which the least memory is left; nil: no group has a limit below the machine's memory.
func (s *State) LeastMemory() (least *Memory) {
	machine, err := procfs.MachineMemory()
	for i := range s.Memory {
		m := &s.Memory[i]
		if m.Limit() > 0 && (err != nil || m.Limit() < machine) && (least == nil || m.Left() < least.Left()) {
			least = m
		}
	}
	return least
}

// parseQuota parses a cpu.max: "150000 100000", the quota and the period in µs. The result is in
// CPUs; 0: no quota.
func parseQuota(b []byte) float64 {
	fields := strings.Fields(string(b))
	if len(fields) != 2 {
		return 0
	}
	quota, err1 := strconv.ParseUint(fields[0], 10, 63)
	period, err2 := strconv.ParseUint(fields[1], 10, 63)
	if err1 != nil || err2 != nil || period == 0 {
		return 0
	}
	return float64(quota) / float64(period)
}

// firstCPU adds a group of version 1.
func (s *State) firstCPU(f *folder) {
	quota, ok1 := f.number("cpu.cfs_quota_us") // -1: no quota
	period, ok2 := f.number("cpu.cfs_period_us")
	if !ok1 || !ok2 || quota == 0 || period == 0 {
		return
	}
	n := f.counts("cpu.stat")
	s.CPU = append(s.CPU, CPU{
		Group: f.group, Quota: float64(quota) / float64(period), Periods: n["nr_periods"], Throttled: n["nr_throttled"],
		Stood: span(n["throttled_time"], time.Nanosecond),
	})
}

// unlimited is above any limit of memory in version 1. A group without a limit has the largest
// multiple of a page that 63 bits hold.
const unlimited = 1 << 60

func (s *State) firstMemory(f *folder) {
	limit, ok1 := f.number("memory.limit_in_bytes")
	used, ok2 := f.number("memory.usage_in_bytes")
	if !ok1 || !ok2 || limit >= unlimited {
		return
	}
	hits, _ := f.number("memory.failcnt")
	s.Memory = append(s.Memory, Memory{
		Group: f.group, Max: limit, Used: used, Reclaim: int64(f.counts("memory.stat")["total_inactive_file"]),
		Hits: uint64(hits), Kills: f.counts("memory.oom_control")["oom_kill"],
	})
}

func (s *State) firstFreezer(f *folder) {
	if b, ok := f.read("freezer.state"); ok && string(bytes.TrimSpace(b)) == "FROZEN" {
		s.Frozen = true
	}
}

// span is n units of time, as long as a Duration holds.
func span(n uint64, unit time.Duration) time.Duration {
	return time.Duration(min(n, uint64(math.MaxInt64)/uint64(unit))) * unit
}

// Since returns the growth of the counters of s since before. Groups that were not there before are
// left out.
func (s *State) Since(before *State) State {
	out := State{Frozen: s.Frozen}
	for _, c := range s.CPU {
		i := slices.IndexFunc(before.CPU, func(b CPU) bool { return b.Group == c.Group })
		if i < 0 || before.CPU[i].Periods > c.Periods || before.CPU[i].Throttled > c.Throttled {
			continue
		}
		b := &before.CPU[i]
		c.Periods, c.Throttled, c.Stood = c.Periods-b.Periods, c.Throttled-b.Throttled, max(c.Stood-b.Stood, 0)
		out.CPU = append(out.CPU, c)
	}
	for _, m := range s.Memory {
		i := slices.IndexFunc(before.Memory, func(b Memory) bool { return b.Group == m.Group })
		if i < 0 {
			continue
		}
		b := &before.Memory[i]
		m.Hits, m.Slowed, m.Kills = grown(m.Hits, b.Hits), grown(m.Slowed, b.Slowed), grown(m.Kills, b.Kills)
		out.Memory = append(out.Memory, m)
	}
	return out
}

func grown(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}
