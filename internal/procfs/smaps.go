package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"clrsnap/internal/target"
)

// maxSmaps bounds EachResident's reading, in bytes. A mapping has some 700 bytes.
const maxSmaps = 64 << 20

// EachResident calls visit for each mapping of the process, with the mapping's bytes in RAM
// (proc_pid_smaps(5)). It needs the right to read the memory of the process.
func (d Dir) EachResident(visit func(m *target.Mapping, resident int64)) error {
	const name = "smaps"
	f, err := d.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := eachResident(io.LimitReader(f, maxSmaps), visit); err != nil {
		return d.explain("read", name, cause(err))
	}
	return nil
}

var errSmaps = errors.New("unexpected format of /proc/<pid>/smaps")

// eachResident parses a smaps: for each mapping a line as in maps, and lines that begin with a capital letter.
func eachResident(r io.Reader, visit func(m *target.Mapping, resident int64)) error {
	b := bufio.NewReaderSize(r, 64<<10) // a path has at most 4096 bytes, each of up to four characters here
	var m target.Mapping
	for {
		line, err := b.ReadSlice('\n')
		if errors.Is(err, io.EOF) { // the bound may have cut a line off
			return nil
		}
		if err != nil {
			return err
		}
		line = line[:len(line)-1]
		if len(line) > 0 && line[0] >= 'A' && line[0] <= 'Z' {
			value, ok := bytes.CutPrefix(line, []byte("Rss:"))
			if !ok {
				continue
			}
			first, _ := nextField(value)
			resident, ok := kibibytes(first)
			if !ok || m.End == 0 {
				return errSmaps
			}
			visit(&m, resident)
			m = target.Mapping{}
			continue
		}
		next, path, ok := ParseMapping(line)
		if !ok {
			return errSmaps
		}
		m = next
		m.Path, m.Deleted = mapsPath(string(path))
	}
}
