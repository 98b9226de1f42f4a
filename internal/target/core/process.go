package core

import (
	"bytes"
	"encoding/binary"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Entries of the auxiliary vector (Linux, include/uapi/linux/auxvec.h).
const (
	auxPHDR   = 3  // address of the program's program headers
	auxEntry  = 9  // address of the program's entry point
	auxVDSO   = 33 // AT_SYSINFO_EHDR: address of the kernel's own library
	auxExecFn = 31 // address of the name by which the program was started
)

func parseAuxv(b []byte) map[uint64]uint64 {
	out := map[uint64]uint64{}
	le := binary.LittleEndian
	for ; len(b) >= 16; b = b[16:] {
		key := le.Uint64(b)
		if key == 0 {
			break
		}
		out[key] = le.Uint64(b[8:])
	}
	return out
}

// execName is the name by which the program was started, if the name is a whole path.
func (c *Core) execName() string {
	at, ok := c.auxv[auxExecFn]
	if !ok {
		return ""
	}
	const maxPath = 4096
	s, err := target.NewReader(dumped{c}).CString(arch.Addr(at), maxPath)
	if err != nil || !strings.HasPrefix(s, "/") {
		return ""
	}
	return s
}

// Command is the command line, with spaces between the arguments. It is complete if the dump has
// the base of the stack; else Command is the first 79 bytes, or the program's name.
func (c *Core) Command() string {
	if args := c.arguments(); len(args) > 0 {
		return strings.Join(args, " ")
	}
	if c.notes.process.command != "" {
		return c.notes.process.command
	}
	return c.notes.process.name
}

const (
	maxArgs      = 1 << 12
	maxArgument  = 1 << 14 // bytes
	maxArguments = 1 << 16 // bytes in all
)

// arguments reads argv at the kernel's place: the stack begins with argc, the pointers to
// arguments and a zero, the pointers to the environment and a zero, the auxiliary vector, and the
// strings (Linux, fs/binfmt_elf.c, create_elf_tables). The auxiliary vector is a note as well, so
// arguments can search for the vector.
func (c *Core) arguments() (out []string) {
	vector, ok := c.findAuxv()
	if !ok {
		return nil
	}
	r := target.NewReader(dumped{c})
	argv, argc, ok := findArgv(r, vector)
	if !ok {
		return nil
	}
	for size, i := 0, 0; i < argc && size < maxArguments; i++ {
		p, err := r.Pointer(argv + arch.Addr(8*i))
		if err != nil {
			return nil
		}
		s, err := r.CString(p, maxArgument)
		if err != nil {
			return nil
		}
		out, size = append(out, strings.ToValidUTF8(s, "\uFFFD")), size+len(s)
	}
	return out
}

// findAuxv searches the stack below the name of the program for the auxiliary vector.
func (c *Core) findAuxv() (arch.Addr, bool) {
	const most = 1 << 20 // of environment and arguments
	name, ok := c.auxv[auxExecFn]
	want := c.notes.auxv[:min(len(c.notes.auxv), 64)]
	if !ok || len(want) < 64 {
		return 0, false
	}
	var buf [2 * pageSize]byte // a page, and the beginning of the page above
	for page := floor(arch.Addr(name)); page > 0 && uint64(page)+most > name; page -= pageSize {
		copy(buf[pageSize:], buf[:len(want)])
		if (dumped{c}).ReadMemory(buf[:pageSize], page) != nil {
			break
		}
		if i := bytes.Index(buf[:pageSize+len(want)], want); i >= 0 {
			return page + arch.Addr(i), true
		}
	}
	return 0, false
}

// findArgv goes back from the auxiliary vector over the environment and the arguments to the
// number of arguments.
func findArgv(r *target.Reader, vector arch.Addr) (argv arch.Addr, argc int, ok bool) {
	const maxWords = 1 << 17
	zeros := 0
	count := uint64(0) // words since the zero after the arguments
	for i := arch.Addr(1); i < maxWords; i++ {
		at := vector - 8*i
		w, err := r.Uint64(at)
		if err != nil {
			return 0, 0, false
		}
		switch {
		case w == 0:
			if zeros++; zeros > 2 {
				return 0, 0, false
			}
		case zeros == 2 && w == count && w <= maxArgs:
			return at + 8, int(count), true
		case zeros == 2:
			count++
		}
	}
	return 0, 0, false
}
