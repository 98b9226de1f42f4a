package source

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"clrsnap/internal/foreign"
	"clrsnap/internal/pdb"
)

// Root says where source files are on this machine: FROM/a/b.cs, in the compiler's words, is
// TO/a/b.cs. Without a From, the file is looked for below To: a/b.cs, then b.cs. The file must have
// the hash in the PDB, because a file there may be a different file.
type Root struct{ From, To string }

// NewRoot returns a Root from paths as the user writes them.
func NewRoot(from, to string) Root { return Root{trimmed(from), to} }

// trimmed is a path with slashes, without slashes at its end.
func trimmed(p string) string { return strings.TrimRight(slashes(p), "/") }

func slashes(p string) string { return strings.ReplaceAll(p, `\`, "/") }

// Roots are tried one after the other.
type Roots []Root

// maxParts bounds the parts of a wanted path.
const maxParts = 64

// Path returns the path of the file that the compiler calls name and whose text has a hash; "": not
// known. The path does not lead out of a root, whatever name is.
func (r Roots) Path(name, algorithm string, sum []byte) string {
	name = slashes(name)
	for _, root := range r {
		if root.From != "" {
			if rest, ok := strings.CutPrefix(name, root.From+"/"); ok {
				return path.Join(root.To, path.Clean("/"+rest))
			}
			continue
		}
		parts := strings.Split(strings.TrimLeft(path.Clean("/"+name), "/"), "/")
		for parts = parts[max(0, len(parts)-maxParts):]; len(parts) > 0 && len(sum) > 0; parts = parts[1:] {
			p := path.Join(root.To, path.Join(parts...))
			if _, ok := root.text(p, algorithm, sum); ok {
				return p
			}
		}
	}
	return ""
}

// Text is Text of a file below one of the roots. A link that leads out of the root is not followed.
func (r Roots) Text(name, algorithm string, sum []byte) ([]byte, bool) {
	for _, root := range r {
		if b, ok := root.text(name, algorithm, sum); ok {
			return b, true
		}
	}
	return nil, false
}

func (r Root) text(name, algorithm string, sum []byte) ([]byte, bool) {
	folder, err := filepath.EvalSymlinks(r.To)
	if err != nil {
		return nil, false
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, false
	}
	return text(name, strings.TrimRight(folder, "/")+"/", algorithm, sum)
}

// Text returns the text of a regular file of this machine with a hash. If the name is a link, it must
// lead to a file of the same kind: a PDB can name any link, with the hash of any file.
func Text(name, algorithm string, sum []byte) ([]byte, bool) { return text(name, "/", algorithm, sum) }

// text is Text of a file whose real path begins with the path of a folder.
func text(name, folder, algorithm string, sum []byte) ([]byte, bool) {
	if len(sum) == 0 {
		return nil, false
	}
	file, err := foreign.Open(name)
	if err != nil {
		return nil, false
	}
	defer file.Close()
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil || !strings.EqualFold(path.Ext(real), path.Ext(name)) || !strings.HasPrefix(real, folder) {
		return nil, false
	}
	if st, err := file.Stat(); err != nil || st.Size() == 0 || st.Size() > pdb.MaxSource {
		return nil, false // files of procfs have no size
	}
	b, err := io.ReadAll(io.NewSectionReader(file, 0, pdb.MaxSource))
	return b, err == nil && pdb.SameText(b, algorithm, sum)
}
