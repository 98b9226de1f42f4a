package procfs

import "bufio"

// BoundSockets lists the paths of Unix sockets in the network namespace of the process, whether
// or not their files are still there (proc_pid_net(5)): of those that keep says so, and at most
// so many. A path is as the process that bound it wrote it, which can be any process there.
func (d Dir) BoundSockets(most int, keep func(path string) bool) ([]string, error) {
	list, err := d.Open("net/unix")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	var paths []string
	lines := bufio.NewScanner(list)
	for lines.Scan() && len(paths) < most {
		if path := socketPath(lines.Bytes()); path != "" && keep(path) {
			paths = append(paths, path)
		}
	}
	return paths, lines.Err()
}

// socketPath is the path in a line of net/unix, which may have blanks in it; "" if it has none.
func socketPath(line []byte) string {
	for range 7 { // address, users, protocol, flags, type, state, inode
		_, line = nextField(line)
	}
	if len(line) < 2 || line[1] != '/' {
		return "" // no name, or an abstract one
	}
	return string(line[1:])
}
