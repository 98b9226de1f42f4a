package display

import (
	"strconv"
	"strings"

	"clrsnap/snapshot"
)

// Source returns a line for people: the name of the file and of its folder, and the line's number:
// "Shop/OrderQueue.cs:42". A ~ before the number says that the line is not certain. The other
// folders belong to the machine that built the program; full adds them.
func Source(l *snapshot.SourceLine, full bool) string {
	if full {
		return sourceLine(l, l.File)
	}
	return sourceLine(l, lastParts(l.File, 2))
}

// SourceFile is Source without any folder.
func SourceFile(l *snapshot.SourceLine) string { return sourceLine(l, lastParts(l.File, 1)) }

func sourceLine(l *snapshot.SourceLine, file string) string {
	about := ":"
	if l.Approximate {
		about = ":~"
	}
	return Clean(file) + about + strconv.Itoa(l.Line)
}

// lastParts returns the last n parts of a path of any system, with slashes.
func lastParts(path string, n int) string {
	path = strings.ReplaceAll(path, `\`, "/")
	parts := strings.Split(path, "/")
	return strings.Join(parts[max(0, len(parts)-n):], "/")
}
