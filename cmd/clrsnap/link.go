package main

import (
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"clrsnap"
	"clrsnap/snapshot"
)

// Terminals with links (OSC 8) say so in the environment, each in its own way.
var (
	// linkingVariables are set by terminals with links.
	linkingVariables = []string{
		"WT_SESSION", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "WEZTERM_PANE", "ALACRITTY_WINDOW_ID",
		"GHOSTTY_RESOURCES_DIR", "DOMTERM", "ITERM_SESSION_ID",
	}
	// linkingPrograms are values of TERM_PROGRAM.
	linkingPrograms = []string{"iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby", "rio", "zed", "mintty"}
	// linkingTerms begin values of TERM.
	linkingTerms = []string{"xterm-kitty", "xterm-ghostty", "alacritty", "foot", "contour", "wezterm", "rio"}
)

// linkingVTE is the first version of VTE with links. VTE is the library of GNOME's terminal and others.
const linkingVTE = 5000

// linksTo reports whether the output to f may have links. FORCE_HYPERLINK decides, else the known facts about the
// terminal. Without colours there are no links.
func (a *app) linksTo(f *os.File) bool {
	if a.color == "never" {
		return false
	}
	if force, ok := os.LookupEnv("FORCE_HYPERLINK"); ok {
		return force != "0" && force != "false"
	}
	// A program between this process and the terminal need not pass on links.
	if !a.colors(f) || !isTerminal(f) || os.Getenv("TMUX") != "" || strings.HasPrefix(os.Getenv("TERM"), "screen") {
		return false
	}
	if vte, err := strconv.Atoi(os.Getenv("VTE_VERSION")); err == nil && vte >= linkingVTE {
		return true
	}
	set := func(name string) bool { return os.Getenv(name) != "" }
	begins := func(term string) bool { return strings.HasPrefix(os.Getenv("TERM"), term) }
	return slices.ContainsFunc(linkingVariables, set) || slices.ContainsFunc(linkingTerms, begins) ||
		slices.Contains(linkingPrograms, os.Getenv("TERM_PROGRAM"))
}

// linker finds the targets of links on source lines.
type linker struct {
	host  string
	files bool            // links to files of this machine
	known map[string]bool // paths, and whether they may be passed
}

// newLinker returns the linker for the output to f; nil: the output has no links.
func (a *app) newLinker(f *os.File) *linker {
	if !a.linksTo(f) {
		return nil
	}
	host, err := os.Hostname()
	// To look at a path from a PDB could mean to wait for a file system for ever.
	local := err == nil && clrsnap.MayBlock(os.Getpid()) == nil
	return &linker{host: host, files: local, known: map[string]bool{}}
}

// link returns a URL for a line: the file's, if the file is on this machine, else SourceLink's; "": none.
func (l *linker) link(line *snapshot.SourceLine) string {
	if l.files && l.isSource(line.File) {
		return (&url.URL{Scheme: "file", Host: l.host, Path: line.File}).String()
	}
	if strings.HasPrefix(line.URL, "https://") {
		return line.URL
	}
	return ""
}

// sources are the extensions of files for links. Whoever opens a link starts the program that the user has chosen for
// the file's type, and a PDB can name any file.
var sources = strings.Fields(`
	.cs .fs .fsi .fsx .vb .razor .cshtml .xaml .il .c .cc .cpp .cxx .h .hh .hpp .hxx .inl .s .asm .rs .go`)

// isSource reports whether a path leads to a source file on this machine. isSource mounts nothing to find out, and
// follows no links of other users.
func (l *linker) isSource(name string) bool {
	if !path.IsAbs(name) || path.Clean(name) != name || !slices.Contains(sources, strings.ToLower(path.Ext(name))) {
		return false
	}
	for i := 1; i < len(name); i++ {
		if name[i] == '/' && !l.passes(name[:i]) {
			return false
		}
	}
	st, ok := statOf(name)
	return ok && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// passes reports whether a directory may be passed.
func (l *linker) passes(dir string) bool {
	if may, ok := l.known[dir]; ok {
		return may
	}
	st, ok := statOf(dir)
	may := ok && st.Attributes&unix.STATX_ATTR_AUTOMOUNT == 0
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		may = may && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
	default:
		may = false
	}
	const most = 1 << 12
	if len(l.known) >= most {
		clear(l.known)
	}
	l.known[dir] = may
	return may
}

func statOf(name string) (st unix.Statx_t, ok bool) {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	err := unix.Statx(unix.AT_FDCWD, name, flags, unix.STATX_TYPE|unix.STATX_UID, &st)
	return st, err == nil
}
