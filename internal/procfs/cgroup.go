package procfs

import (
	"bytes"
	"strings"
)

// Cgroup is a control group of a process.
type Cgroup struct {
	// Controllers are the controllers of a hierarchy of version 1, for example "memory"; nil:
	// version 2, with one hierarchy for all controllers.
	Controllers []string
	// Path is the group's path in the hierarchy, below the root of our own cgroup namespace: "/"
	// or "/system.slice/shop". It begins with "/.." if the group is outside.
	Path string
}

// maxCgroups bounds the hierarchies: version 1 has a dozen.
const maxCgroups = 64

// Cgroups lists the control groups of the process, one for each hierarchy (cgroups(7)).
func (d Dir) Cgroups() ([]Cgroup, error) {
	b, err := d.ReadFile("cgroup")
	if err != nil {
		return nil, err
	}
	return parseCgroups(b), nil
}

// parseCgroups parses lines like 4:memory:/shop, or 0::/shop for version 2.
func parseCgroups(b []byte) (out []Cgroup) {
	for line := range bytes.Lines(b) {
		parts := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") || len(out) == maxCgroups {
			continue
		}
		c := Cgroup{Path: strings.TrimSuffix(parts[2], " (deleted)")}
		if parts[0] != "0" {
			c.Controllers = strings.Split(parts[1], ",")
		}
		out = append(out, c)
	}
	return out
}
