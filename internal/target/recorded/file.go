package recorded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"clrsnap/internal/target"
)

// File is the recorded part of a file of the target. A file that was opened by its path has neither device nor inode.
type File struct {
	Path  string
	Dev   uint64
	Inode uint64
	Error string // why the file could not be opened; empty for an opened file
	None  bool   // there was no such file
	Size  int64  // 0: not known
	Pages Pages
}

// NewFile returns a File without a page.
func NewFile(path string, dev, inode uint64) *File {
	return &File{Path: path, Dev: dev, Inode: inode, Pages: NewPages()}
}

// FindFile returns a file of a list; nil: the list lacks the file.
func FindFile(list []*File, path string, dev, inode uint64) *File {
	for _, f := range list {
		if f.Path == path && f.Dev == dev && f.Inode == inode {
			return f
		}
	}
	return nil
}

// Open opens the recorded part of a file; nil: the file was not recorded.
func (f *File) Open(name string) (target.File, error) {
	if f == nil {
		return nil, fmt.Errorf("%s: %w", name, errNotRecorded)
	}
	switch {
	case f.None:
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	case f.Error != "":
		return nil, errors.New(f.Error)
	}
	return file{f}, nil
}

// file is an open recorded file.
type file struct{ f *File }

func (f file) Close() error { return nil }

// Stat knows only the size of the file.
func (f file) Stat() (fs.FileInfo, error) {
	if f.f.Size == 0 {
		return nil, fmt.Errorf("the size of %s: %w", f.f.Path, errNotRecorded)
	}
	return info(f), nil
}

type info struct{ f *File }

func (i info) Name() string     { return path.Base(i.f.Path) }
func (i info) Size() int64      { return i.f.Size }
func (info) Mode() fs.FileMode  { return 0o444 }
func (info) ModTime() time.Time { return time.Time{} }
func (info) IsDir() bool        { return false }
func (info) Sys() any           { return nil }

func (f file) ReadAt(p []byte, at int64) (int, error) {
	var end error
	if f.f.Size > 0 {
		if at >= f.f.Size {
			return 0, io.EOF
		}
		if left := f.f.Size - at; int64(len(p)) > left {
			p, end = p[:left], io.EOF
		}
	}
	if at < 0 || !f.f.Pages.read(p, uint64(at)) {
		return 0, fmt.Errorf("%s at %#x: %w", f.f.Path, at, errNotRecorded)
	}
	return len(p), end
}

// Record returns an open file whose reads are recorded. err is the error of opening the file.
func (f *File) Record(open target.File, err error) (target.File, error) {
	if err != nil {
		f.Error, f.None = err.Error(), errors.Is(err, fs.ErrNotExist)
		return nil, err
	}
	if of, ok := open.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if st, err := of.Stat(); err == nil {
			f.Size = st.Size()
		}
	}
	return &fileRecorder{File: open, kept: f}, nil
}

type fileRecorder struct {
	target.File
	kept *File
}

// Stat is as of the recorded file.
func (f *fileRecorder) Stat() (fs.FileInfo, error) { return file{f.kept}.Stat() }

func (f *fileRecorder) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	if n > 0 {
		f.keep(uint64(at), uint64(at)+uint64(n-1))
	}
	if err == io.EOF {
		f.kept.Size = at + int64(n)
	}
	return n, err
}

func (f *fileRecorder) keep(first, last uint64) {
	for n := first / PageSize; n <= last/PageSize; n++ {
		if f.kept.Pages.has(n) {
			continue
		}
		page := make([]byte, PageSize)
		k, _ := f.File.ReadAt(page, int64(n*PageSize)) // the last page is short
		f.kept.Pages.Data[n] = page[:k]
	}
}
