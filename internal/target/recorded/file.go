package recorded

import (
	"errors"
	"fmt"
	"io"

	"clrsnap/internal/target"
)

// File is the recorded part of a file of the target. A file that was opened by its path has neither device nor inode.
type File struct {
	Path  string
	Dev   uint64
	Inode uint64
	Error string // why the file could not be opened; empty for an opened file
	Size  int64  // 0: no read reached the end
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
func (f *File) Open(path string) (target.File, error) {
	if f == nil {
		return nil, fmt.Errorf("%s: %w", path, errNotRecorded)
	}
	if f.Error != "" {
		return nil, errors.New(f.Error)
	}
	return file{f}, nil
}

// file is an open recorded file.
type file struct{ f *File }

func (f file) Close() error { return nil }

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
		f.Error = err.Error()
		return nil, err
	}
	return &fileRecorder{File: open, kept: f}, nil
}

type fileRecorder struct {
	target.File
	kept *File
}

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
