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

	"golang.org/x/sys/unix"
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
	path   string // as the user has it
	place  *place // nil: standard output
	format export.Format
	stdout *os.File
	direct bool       // cannot be replaced: a pipe, or a file in a folder of others
	temp   *temporary // made already; nil: not yet, or not any more
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
	if err := p.probe(); err != nil {
		return nil, fmt.Errorf("cannot write to %s: %w: choose another file with -o", p.path, unwrapPath(err))
	}
	return p, nil
}

// probe finds out whether and how the file can be written.
func (p *pendingFile) probe() (err error) {
	if p.place, err = locate(p.path); err != nil {
		return err
	}
	if st := p.place.st; st != nil {
		// To open a pipe and to close it would be the end of it for whoever reads it.
		if err := unix.Faccessat(int(p.place.dir.Fd()), p.place.name, unix.W_OK, unix.AT_EACCESS); err != nil {
			return err
		}
		if p.direct = st.Mode&unix.S_IFMT != unix.S_IFREG || p.place.proc; p.direct {
			return p.checkDirect()
		}
	}
	t, err := p.place.makeTemp()
	if err != nil {
		if p.direct = p.place.st != nil; p.direct {
			return p.checkDirect()
		}
		return err
	}
	return t.discard()
}

// checkDirect refuses what a stranger may have put there to read along.
func (p *pendingFile) checkDirect() error {
	if p.place.proc {
		return nil
	}
	return p.place.checkOwner("it belongs to user %d")
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

// title is what messages call the file.
func (p *pendingFile) title() string {
	if p.path == "-" {
		return "standard output"
	}
	return p.path
}

// write encodes into the file.
func (p *pendingFile) write(encode func(io.Writer) error) error {
	if p.path == "-" {
		return encode(p.stdout)
	}
	defer p.close()
	if p.direct {
		f, err := p.place.openThere()
		if err != nil {
			return err
		}
		return errors.Join(encode(f), f.Close())
	}
	t, err := p.take()
	if err != nil {
		return err
	}
	return t.become(encode)
}

// take returns the temporary file, which is then the caller's.
func (p *pendingFile) take() (*temporary, error) {
	if t := p.temp; t != nil {
		p.temp = nil
		return t, nil
	}
	return p.place.makeTemp()
}

// close gives up what has not been written. It may be called again.
func (p *pendingFile) close() error {
	var err error
	if p.temp != nil {
		err = p.temp.discard()
		p.temp = nil
	}
	if p.place != nil {
		p.place.close()
		p.place = nil
	}
	return err
}

func umask() os.FileMode {
	m := syscall.Umask(0)
	syscall.Umask(m)
	return os.FileMode(m)
}

// rescue keeps a recording that could not be written where it should be, and
// returns the error that says where it is now. Which is to be said even if why is
// that nobody reads standard output any more.
func rescue(r *profile.Recording, p *pendingFile, why error) error {
	path := p.path
	if path == "-" {
		path = "to standard output"
	}
	why = fmt.Errorf("cannot write %s: %v", path, unwrapPath(why))
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
			return fmt.Errorf("%w: the recording has been kept: clrsnap view %s -o FILE writes it elsewhere", why, path)
		}
	}
	return fmt.Errorf("%w: nor could the recording be kept in any other place", why)
}

// tellMode says which of several modes is written in a format that has room for one. It is
// the first, which export.Options choose.
func (a *app) tellMode(r *profile.Recording, format export.Format) {
	if there := export.SampledModes(r); len(there) > 1 && format.OneMode() {
		say(a.stderr, "note: %s files have one mode: this one has the %s samples, --mode %s writes the others",
			format, there[0], joined(there[1:], "or"))
	}
}

// forTerminal refuses to write what is not text for people to a terminal.
func (a *app) forTerminal(o outputFile) error {
	if o.path == "-" && o.format != export.FormatFolded && isTerminal(a.stdout) {
		return usagef("%s files are not for terminals: give a file with -o", o.format)
	}
	return nil
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
