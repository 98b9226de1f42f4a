package procfs

import "bytes"

// An IDRange is a line of a uid_map or a gid_map (user_namespaces(7)): a range of ids of a user
// namespace, and the begin of their ids in the outer namespace.
type IDRange struct{ Inside, Outside, Count int }

// UIDMap maps user ids of the process's user namespace to ours.
func (d Dir) UIDMap() ([]IDRange, error) {
	b, err := d.ReadFile("uid_map")
	if err != nil {
		return nil, err
	}
	return parseIDMap(b), nil
}

// parseIDMap parses a uid_map or a gid_map, without lines in another format.
func parseIDMap(b []byte) (ranges []IDRange) {
	for line := range bytes.Lines(b) {
		if v, ok := idList(nil, line, 3); ok && len(v) == 3 {
			ranges = append(ranges, IDRange{v[0], v[1], v[2]})
		}
	}
	return ranges
}
