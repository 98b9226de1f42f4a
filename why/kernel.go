package why

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/internal/procfs"
	"clrsnap/profile"
)

// moment adds the kernel's view of the process now. clrsnap stops no thread at that time.
func (g *gatherer) moment() {
	m := moment{at: time.Since(g.start), state: 'S', idle: -1, kinds: map[string]int{}}
	if idle, err := procfs.MachineIdle(); err == nil {
		m.idle = idle
	}
	if s, err := g.dir.Stat(); err == nil {
		m.state, m.cpu = s.State, time.Duration(s.CPU)*procfs.ClockTick
	}
	if s, err := g.dir.Status(); err == nil {
		m.rss, m.traced = s.RSS, s.TracerPID
	}
	if m.traced != 0 {
		if d, err := procfs.Open(m.traced); err == nil {
			m.tracer, _ = d.Comm()
			d.Close()
		}
	}
	m.groups, _ = g.group.State()
	if limit, err := g.dir.OpenFiles(); err == nil {
		m.filesLimit = limit
	}
	if names, err := g.dir.Names("fd"); err == nil {
		m.files = len(names)
		if full(m.files, m.filesLimit) {
			g.classify(names, m.kinds)
		}
	} else {
		g.missOnce("Descriptors were not looked at: %v.", err)
	}
	g.e.moments = append(g.e.moments, m)
}

func (g *gatherer) missOnce(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, m := range g.e.missing {
		if m == text {
			return
		}
	}
	g.e.missing = append(g.e.missing, text)
}

// maxClassified bounds the classified descriptors.
const maxClassified = 1 << 14

// classify counts descriptors by their targets.
func (g *gatherer) classify(names []string, kinds map[string]int) {
	connections, _ := g.dir.Connections()
	remotes := map[string]string{}
	for inode, c := range connections {
		remotes[fmt.Sprintf("socket:[%d]", inode)] = connectionKind(&c)
	}
	for _, name := range names[:min(len(names), maxClassified)] {
		to, err := g.dir.Readlink("fd/" + name)
		if err != nil {
			continue
		}
		kinds[descriptorKind(to, remotes)]++
	}
}

// connectionKind is the key for counting connections: the protocol and the remote address, without the port.
func connectionKind(c *procfs.Connection) string {
	if c.Remote.Port() == 0 {
		return "sockets that listen"
	}
	return fmt.Sprintf("%s sockets to or from %s", c.Protocol, c.Remote.Addr())
}

// descriptorKind is the key for counting descriptors: files by their folder, sockets by their remote
// address.
func descriptorKind(to string, remotes map[string]string) string {
	if kind := remotes[to]; kind != "" {
		return kind
	}
	kind, _, special := strings.Cut(to, ":[")
	switch {
	case special && kind == "socket":
		return "other sockets"
	case special:
		return kind + "s"
	case strings.HasPrefix(to, "anon_inode:"):
		return strings.Trim(strings.TrimPrefix(to, "anon_inode:"), "[]") + " descriptors"
	case strings.HasPrefix(to, "/"):
		return "files in " + to[:max(1, strings.LastIndexByte(to, '/'))]
	}
	return "others"
}

// tell says what was looked at.
func (g *gatherer) tell() {
	e := &g.e
	say := func(format string, args ...any) { e.looked = append(e.looked, fmt.Sprintf(format, args...)) }
	if len(e.looks) > 0 {
		waits := ", with what they wait for and hold"
		if m := g.s.Managed; m == nil || m.Locks == nil {
			waits = ", without what they wait for and hold"
		}
		say("%s at %s%s", counted(len(e.looks), "look", "looks"), threadsOf(len(e.last().snap.Threads)), waits)
		if p := e.last().pool; p != nil {
			queue := ""
			if p.HasQueue {
				queue = fmt.Sprintf(", %s queued", counted(p.Queued, "work item", "work items"))
			}
			say("the thread pool: %d of %s with a work item, minimum %d%s", p.Working,
				counted(p.Workers, "worker", "workers"), p.Minimum, queue)
		}
	}
	if r := e.samples; r != nil {
		say("%s of samples: %s", seconds(r.Duration), sampled(r))
	}
	if n := len(e.moments); n > 0 {
		m := &e.moments[n-1]
		if m.filesLimit > 0 && m.files > 0 {
			say("%s of %s descriptors", display.Number(m.files), display.Number(m.filesLimit))
		}
		say("%s", limits(m))
	}
}

// sampled says what was recorded.
func sampled(r *profile.Recording) string {
	var words []string
	for _, s := range r.Modes {
		if !s.Mode.OfEvents() {
			words = append(words, fmt.Sprintf("%s of %s", display.Number(s.Samples), strings.ToLower(s.Mode.Title())))
		}
	}
	names := map[profile.Mode]string{
		profile.Alloc: "allocations", profile.Exception: "exceptions", profile.Contention: "waits for locks",
		profile.GC: "garbage collections",
	}
	recorded := maps.Collect(func(yield func(profile.Mode, bool) bool) {
		for _, s := range r.Modes {
			if !yield(s.Mode, true) {
				return
			}
		}
	})
	for _, m := range profile.Modes {
		if recorded[m] && names[m] != "" {
			words = append(words, names[m])
		}
	}
	return list(words)
}

// limits describes the limits of the control groups.
func limits(m *moment) string {
	var words []string
	for _, c := range m.groups.CPU {
		if c.Quota > 0 {
			words = append(words, fmt.Sprintf("%.2g CPUs", c.Quota))
			break
		}
	}
	for _, g := range m.groups.Memory {
		words = append(words,
			fmt.Sprintf("%s of memory, of which %s are used", bytesOf(g.Limit()), bytesOf(g.Used-g.Reclaim)))
		break
	}
	if len(words) == 0 {
		return "its control groups, which have no limits of CPU time and memory that can be seen here"
	}
	return "its control groups: at most " + list(words)
}
