package gather

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/internal/phrase"
	"clrsnap/internal/procfs"
	"clrsnap/profile"
)

// moment adds the kernel's view of the process now. clrsnap stops no thread at that time.
func (g *Gatherer) moment() {
	m := Moment{At: time.Since(g.start), State: 'S', Idle: -1, Kinds: map[string]int{}}
	if idle, err := procfs.MachineIdle(); err == nil {
		m.Idle = idle
	}
	if s, err := g.dir.Stat(); err == nil {
		m.State, m.CPU = s.State, time.Duration(s.CPU)*procfs.ClockTick
	}
	if s, err := g.dir.Status(); err == nil {
		m.Rss, m.Traced = s.RSS, s.TracerPID
	}
	if m.Traced != 0 {
		if d, err := procfs.Open(m.Traced); err == nil {
			m.Tracer, _ = d.Comm()
			d.Close()
		}
	}
	m.Groups, _ = g.group.State()
	if limit, err := g.dir.OpenFiles(); err == nil {
		m.FilesLimit = limit
	}
	if names, err := g.dir.Names("fd"); err == nil {
		m.Files = len(names)
		if Full(m.Files, m.FilesLimit) || len(g.Moments) > 0 && MoreFiles(&g.Moments[0], &m) > 0 {
			g.classify(names, m.Kinds)
		}
	} else {
		g.missOnce("Descriptors were not looked at: %v.", err)
	}
	g.Moments = append(g.Moments, m)
}

// maxClassified bounds the classified descriptors.
const maxClassified = 1 << 14

// classify counts descriptors by their targets.
func (g *Gatherer) classify(names []string, kinds map[string]int) {
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
func (g *Gatherer) tell() {
	e := &g.Evidence
	say := func(format string, args ...any) { e.Looked = append(e.Looked, fmt.Sprintf(format, args...)) }
	if len(e.Looks) > 0 {
		waits := ", with what they wait for and hold"
		if m := g.s.Managed; m == nil || m.Locks == nil {
			waits = ", without what they wait for and hold"
		}
		say("%s at %s%s", phrase.Counted(len(e.Looks), "look", "looks"), phrase.ThreadsOf(len(e.Last().Snap.Threads)),
			waits)
		if p := e.Last().Pool; p != nil {
			queue := ""
			if p.HasQueue {
				queue = fmt.Sprintf(", %s queued", phrase.Counted(p.Queued, "work item", "work items"))
			}
			say("the thread pool: %d of %s with a work item, minimum %d%s", p.Working,
				phrase.Counted(p.Workers, "worker", "workers"), p.Minimum, queue)
		}
	}
	if r := e.Samples; r != nil {
		say("%s of samples: %s", phrase.Seconds(r.Duration), sampled(r))
	}
	if n := len(e.Moments); n > 0 {
		m := &e.Moments[n-1]
		if m.FilesLimit > 0 && m.Files > 0 {
			say("%s of %s descriptors", display.Number(m.Files), display.Number(m.FilesLimit))
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
	return phrase.List(words)
}

// limits describes the limits of the control groups.
func limits(m *Moment) string {
	var words []string
	for _, c := range m.Groups.CPU {
		if c.Quota > 0 {
			words = append(words, fmt.Sprintf("%.2g CPUs", c.Quota))
			break
		}
	}
	for _, g := range m.Groups.Memory {
		words = append(words,
			fmt.Sprintf("%s of memory, with %s used", phrase.BytesOf(g.Limit()),
				phrase.BytesOf(g.Used-g.Reclaim)))
		break
	}
	if len(words) == 0 {
		return "its control groups, without visible limits of CPU time and memory"
	}
	return "its control groups: at most " + phrase.List(words)
}
