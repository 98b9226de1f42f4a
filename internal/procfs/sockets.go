package procfs

import "bufio"

// BoundSockets lists the paths of Unix sockets in the network namespace of the process, whether
// or not their files still exist (proc_pid_net(5)): the paths that keep accepts, with most as the
// limit of their number. A path is in the form of the process that bound the socket. Any process
// in the namespace can bind sockets.
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

// socketPath is the path in a line of net/unix, possibly with blanks; "" if the line has no path.
func socketPath(line []byte) string {
	for range 7 { // address, users, protocol, flags, type, state, inode
		_, line = nextField(line)
	}
	if len(line) < 2 || line[1] != '/' {
		return "" // no name, or an abstract name
	}
	return string(line[1:])
}
