package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clrsnap/export"
	"clrsnap/profile"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// outputFile has the values of --output and --format.
type outputFile struct {
	path   string // empty: named after the program and the time; "-": standard output
	format export.Format
}

// chooseOutput returns the file and the format of --output and --format. otherwise is the default format.
func chooseOutput(output, format string, otherwise export.Format) (outputFile, error) {
	o := outputFile{path: output, format: otherwise}
	if format != "" {
		o.format = export.Format(format)
		return o, oneOf("format", format, formatNames()...)
	}
	switch {
	case output == "-":
		return o, usagef("-o - is standard output, without a file extension: give the format with --format")
	case output != "":
		f, ok := export.FormatOf(output)
		if !ok {
			return o,
				usagef("the file extension of %q names no format: use one of %s, or give the format with --format",
					output, strings.Join(export.Extensions(), ", "))
		}
		o.format = f
	}
	return o, nil
}

// pendingFile is an output that is written at the end, either completely or not at all.
type pendingFile struct {
	path   string // as the user gave it
	place  *place // nil: standard output
	format export.Format
	stdout *os.File
	direct bool       // written in place, because the file cannot be replaced: a pipe, or in a directory of others
	temp   *temporary // the file that will replace the output's; nil: not made yet, or taken
}

// open chooses a file name, if none was given, and checks that the output can be written,
// before the user waits for a recording.
func (o *outputFile) open(stdout *os.File, program string, now time.Time) (*pendingFile, error) {
	p := &pendingFile{path: o.path, format: o.format, stdout: stdout}
	if p.path == "-" {
		return p, nil
	}
	if p.path == "" {
		p.path = fmt.Sprintf("%s-%s%s", fileName(program), now.Format("20060102-150405"), o.format.Extension())
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
		// The file is not opened: to open and close a pipe would end the pipe for its reader.
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

// checkDirect refuses a file that another user may have put there to read the output.
func (p *pendingFile) checkDirect() error {
	if p.place.proc {
		return nil
	}
	return p.place.checkOwner("the file belongs to user %d")
}

// fileName returns a file name for the name of a program.
func fileName(program string) string {
	for _, extension := range []string{".dll", ".exe"} {
		program = strings.TrimSuffix(program, extension)
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

// title returns the name of the file in messages.
func (p *pendingFile) title() string {
	if p.path == "-" {
		return "standard output"
	}
	return p.path
}

// write writes the encoded data to the file.
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

// print is write with an error that names the file.
func (p *pendingFile) print(encode func(io.Writer) error) error {
	if err := p.write(encode); err != nil {
		return fmt.Errorf("cannot write to %s: %w", p.title(), unwrapPath(err))
	}
	return nil
}

// take returns the temporary file; the file then belongs to the caller.
func (p *pendingFile) take() (*temporary, error) {
	if t := p.temp; t != nil {
		p.temp = nil
		return t, nil
	}
	return p.place.makeTemp()
}

// close discards the unwritten output. close may be called again.
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

// rescue saves a recording elsewhere, because its file could not be written. rescue returns an error with the reason
// and the new place of the recording. The error does not wrap why: explain would be silent about EPIPE.
func rescue(r *profile.Recording, p *pendingFile, why error) error {
	why = fmt.Errorf("cannot write to %s: %v", p.title(), unwrapPath(why))
	base := strings.TrimSuffix(filepath.Base(p.path), p.format.Extension())
	if p.path == "-" || base == "" {
		base = "clrsnap"
	}
	name := fmt.Sprintf("%s-kept-%s%s", base, time.Now().Format("150405"), export.FormatRecording.Extension())
	home, _ := os.UserHomeDir() // empty: not there
	for _, dir := range []string{os.TempDir(), "/dev/shm", "/var/tmp", home, "."} {
		if dir == "" {
			continue
		}
		path := filepath.Join(dir, name)
		if replaceFile(path, func(w io.Writer) error { return export.WriteRecording(w, r) }) == nil {
			return fmt.Errorf("%w: the recording was saved elsewhere: clrsnap view %s -o FILE writes it to FILE",
				why, path)
		}
	}
	return fmt.Errorf("%w: the recording is lost, because no other directory could take the file", why)
}

// tellMode prints which of several modes is written in a format for one mode: the first mode, which export.Options
// choose. For folded stacks tellMode prints how to tell the modes apart.
func (a *app) tellMode(r *profile.Recording, format export.Format) {
	there := r.SampledModes()
	switch {
	case len(there) < 2:
	case format == export.FormatFolded:
		var roots []string
		for _, m := range there {
			roots = append(roots, export.FoldedRoot(m))
		}
		say(a.stderr, "note: the folded stacks have several modes: the first frame names the mode and the unit, %s",
			enumerated(roots, "and"))
	case format.OneMode():
		say(a.stderr, "note: a %s file holds one mode, here the %s samples; --mode %s writes the others",
			format, there[0], joined(there[1:], "or"))
	}
}

// forTerminal refuses to write a format that is not text for people to a terminal.
func (a *app) forTerminal(o outputFile) error {
	if o.path == "-" && o.format != export.FormatFolded && isTerminal(a.stdout) {
		return usagef("a terminal cannot show %s files: give a file with -o", o.format)
	}
	return nil
}

// formatNames returns the values of --format.
func formatNames() []string {
	var out []string
	for _, f := range export.Formats() {
		out = append(out, string(f))
	}
	return out
}

// offerFormats offers the file extensions of the formats to the shell: see completeOutput.
func offerFormats(offer func(extension, description string)) {
	for _, f := range export.Formats() {
		offer(f.Extension(), f.Description())
	}
}

// formatsHelp describes the formats.
func formatsHelp() string {
	var b strings.Builder
	for _, f := range export.Formats() {
		fmt.Fprintf(&b, "  %-18s %s\n", f.Extension(), f.Description())
	}
	return strings.TrimRight(b.String(), "\n")
}

// completeOutput has the shell offer the file extensions of a flag, with their descriptions.
func completeOutput(cmd *cobra.Command, flag string, extensions func(offer func(extension, description string))) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) (
		[]string, cobra.ShellCompDirective,
	) {
		name := filepath.Base(typed)
		there, _ := filepath.Glob(typed + "*") // a pattern that makes no sense matches nothing
		if typed == "" || strings.HasSuffix(typed, "/") || len(there) > 0 && !strings.Contains(name, ".") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var out []string
		extensions(func(extension, description string) {
			stem := typed
			if i := strings.IndexByte(name, '.'); i >= 0 {
				if !strings.HasPrefix(extension, name[i:]) {
					return
				}
				stem = typed[:len(typed)-len(name)+i]
			}
			out = append(out, stem+extension+"\t"+description)
		})
		return out, cobra.ShellCompDirectiveDefault
	})
	if err != nil {
		panic(err) // the flag does not exist
	}
}
