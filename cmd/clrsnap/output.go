package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"clrsnap/export"
	"clrsnap/profile"
)

// outputFile is what --output and --format say.
type outputFile struct {
	path   string // empty: named after what is written; "-": standard output
	format export.Format
}

// chooseOutput makes sense of --output and --format.
func chooseOutput(output, format string, otherwise export.Format) (outputFile, error) {
	o := outputFile{path: output, format: otherwise}
	if format != "" {
		o.format = export.Format(format)
		return o, oneOf("format", format, formatNames()...)
	}
	switch {
	case output == "-":
		return o, usagef("-o - is standard output, which has no ending: give the format with --format")
	case output != "":
		f, ok := export.FormatOf(output)
		if !ok {
			return o, usagef("the ending of %q is that of no format: it is one of %s; or give the format with --format", output, strings.Join(export.Endings(), ", "))
		}
		o.format = f
	}
	return o, nil
}

// pendingFile is an output that is written at the end: either wholly or not at
// all.
type pendingFile struct {
	path   string
	format export.Format
	stdout *os.File
	direct bool // not a file that could be replaced, such as a pipe
}

// open chooses a name, where none was given, and makes sure that the output can be
// written, before anybody waits for what is to be written.
func (o *outputFile) open(stdout *os.File, program string, now time.Time) (*pendingFile, error) {
	p := &pendingFile{path: o.path, format: o.format, stdout: stdout}
	if p.path == "-" {
		return p, nil
	}
	if p.path == "" {
		p.path = fmt.Sprintf("%s-%s%s", fileName(program), now.Format("20060102-150405"), o.format.Ending())
	}
	if info, err := os.Stat(p.path); err == nil && !info.Mode().IsRegular() {
		if p.direct = true; info.IsDir() {
			return nil, fmt.Errorf("cannot write to %s: it is a directory: choose a file with -o", p.path)
		}
	}
	probe := func() (*os.File, error) { return os.CreateTemp(filepath.Dir(p.path), ".clrsnap-*") }
	if p.direct {
		probe = func() (*os.File, error) { return os.OpenFile(p.path, os.O_WRONLY|syscall.O_NONBLOCK, 0) }
	}
	f, err := probe()
	if err != nil && !(p.direct && errors.Is(err, syscall.ENXIO)) { // a pipe that nobody reads from yet
		return nil, fmt.Errorf("cannot write to %s: %w: choose another file with -o", p.path, unwrapPath(err))
	}
	if f != nil {
		f.Close()
		if !p.direct {
			os.Remove(f.Name())
		}
	}
	return p, nil
}

// fileName makes a name that suits a file of the name of a program.
func fileName(program string) string {
	for _, ending := range []string{".dll", ".exe"} {
		program = strings.TrimSuffix(program, ending)
	}
	if program == "" {
		program = "process"
	}
	return strings.Map(func(r rune) rune {
		if r > ' ' && r != 0x7f && !strings.ContainsRune(`/\:*?"<>|`, r) {
			return r
		}
		return '_'
	}, program)
}

// write encodes into the file.
func (p *pendingFile) write(encode func(io.Writer) error) error {
	if p.path == "-" {
		return encode(p.stdout)
	}
	if p.direct {
		f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		return errors.Join(encode(f), f.Close())
	}
	return replaceFile(p.path, encode)
}

// replaceFile writes a file next to the one that it then takes the place of.
func replaceFile(path string, encode func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".clrsnap-*")
	if err != nil {
		return err
	}
	mode := 0o666 &^ umask()
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	err = encode(f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func umask() os.FileMode {
	m := syscall.Umask(0)
	syscall.Umask(m)
	return os.FileMode(m)
}

// rescue keeps a recording that could not be written where it should be, and
// returns the error that says where it is now.
func rescue(r *profile.Recording, p *pendingFile, why error) error {
	base := strings.TrimSuffix(filepath.Base(p.path), p.format.Ending())
	if p.path == "-" || base == "" {
		base = "clrsnap"
	}
	name := fmt.Sprintf("%s-kept-%s%s", base, time.Now().Format("150405"), export.FormatRecording.Ending())
	home, _ := os.UserHomeDir() // else not there
	for _, dir := range []string{os.TempDir(), "/dev/shm", "/var/tmp", home, "."} {
		if dir == "" {
			continue
		}
		path := filepath.Join(dir, name)
		if replaceFile(path, func(w io.Writer) error { return export.WriteRecording(w, r) }) == nil {
			return fmt.Errorf("cannot write %s: %w: the recording has been kept: clrsnap view %s -o FILE writes it elsewhere", p.path, unwrapPath(why), path)
		}
	}
	return fmt.Errorf("cannot write %s: %w: nor could the recording be kept in any other place", p.path, unwrapPath(why))
}

// formatNames are the values of --format.
func formatNames() []string {
	var out []string
	for _, f := range export.Formats() {
		out = append(out, string(f))
	}
	return out
}

// formatsHelp describes the formats.
func formatsHelp() string {
	var b strings.Builder
	for _, f := range export.Formats() {
		fmt.Fprintf(&b, "  %-18s %s\n", f.Ending(), f.Description())
	}
	return strings.TrimRight(b.String(), "\n")
}
