package recorded

import (
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Target is a target that holds still, to be recorded.
type Target interface {
	target.Memory
	Mappings() (target.Mappings, error)
	OpenMapping(*target.Mapping) (target.File, error)
	OpenFile(path string) (target.File, error)
}

// Recorder passes reads on to a target, and records the answers in a Moment.
type Recorder struct {
	From Target
	To   *Moment
}

// NewRecorder returns a Recorder that adds to a Moment.
func NewRecorder(from Target, to *Moment) *Recorder {
	if to.Memory.Data == nil {
		to.Memory = NewPages()
	}
	return &Recorder{From: from, To: to}
}

// ReadMemory implements target.Memory.
func (r *Recorder) ReadMemory(p []byte, addr arch.Addr) error {
	err := r.From.ReadMemory(p, addr)
	if err == nil {
		r.To.memory().Keep(r.From, p, addr)
	}
	return err
}

// Copied records memory that was copied without ReadMemory.
func (r *Recorder) Copied(pieces ...target.Region) {
	for _, c := range pieces {
		r.To.memory().Keep(r.From, c.Data, c.Base)
	}
}

// Mappings are the mappings of the target.
func (r *Recorder) Mappings() (maps target.Mappings, err error) {
	maps, err = r.From.Mappings()
	r.To.Mapped = maps
	return maps, err
}

// OpenMapping opens the file behind a mapping.
func (r *Recorder) OpenMapping(m *target.Mapping) (target.File, error) {
	return r.file(m.Path, m.Dev, m.Inode).Record(r.From.OpenMapping(m))
}

// OpenFile opens a file by the process's path.
func (r *Recorder) OpenFile(path string) (target.File, error) {
	return r.file(path, 0, 0).Record(r.From.OpenFile(path))
}

func (r *Recorder) file(path string, dev, inode uint64) *File {
	f := FindFile(r.To.Files, path, dev, inode)
	if f == nil {
		f = NewFile(path, dev, inode)
		r.To.Files = append(r.To.Files, f)
	}
	return f
}

// Neutral replaces a text everywhere in the recording by another text of equal length: the name of the machine, or
// of a folder.
func (m *Moment) Neutral(text, by string) {
	replace := func(s *string) { *s = strings.ReplaceAll(*s, text, by) }
	replace(&m.Note)
	replace(&m.Command)
	replace(&m.Program)
	for i := range m.Truths {
		replace(&m.Truths[i])
	}
	for i := range m.Threads {
		replace(&m.Threads[i].Name)
	}
	for i := range m.Mapped {
		replace(&m.Mapped[i].Path)
	}
	m.eachPage(func(page []byte) { Overwrite(page, text, by) })
	for _, f := range m.Files {
		replace(&f.Path)
		replace(&f.Error)
	}
}

// eachPage visits all recorded bytes.
func (m *Moment) eachPage(visit func([]byte)) {
	for _, page := range m.Memory.Data {
		visit(page)
	}
	for _, f := range m.Fragments {
		visit(f.Data)
	}
	for _, f := range m.Files {
		for _, page := range f.Pages.Data {
			visit(page)
		}
	}
}
