package clrsnap_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// mayOpen are the source files that open files by themselves, and which ones. All others
// are strangers' files: internal/foreign opens those.
var mayOpen = map[string]string{
	"discover.go":       "/proc",
	"process.go":        "/proc/PID/cmdline",
	"recordchildren.go": "/proc/PID/task/TID/children",

	"cmd/clrsnap/place.go": "the directory of an output, and what is there if it is not a stranger's",
	"cmd/clrsnap/stuck.go": "/proc/self/task/TID/syscall and status",
	"cmd/clrsnap/view.go":  "what the user names, which may be a pipe of the user's",

	"internal/diagnostics/socket.go":   "/proc/PID/environ, status, net/unix",
	"internal/foreign/foreign.go":      "anything, after it has looked at it",
	"internal/inject/folder.go":        "a folder that we have made",
	"internal/inject/reasons.go":       "/proc/PID/environ",
	"internal/inject/trust.go":         "a directory, by a descriptor, after it was checked",
	"internal/inject/user.go":          "/proc/PID/status and uid_map",
	"internal/mounts/mounts.go":        "/proc/PID/mountinfo",
	"internal/perfevent/errors.go":     "/proc/sys/kernel/perf_event_paranoid",
	"internal/perfevent/generation.go": "/proc/PID/task, /sys/devices/system/cpu",
	"internal/perfevent/kallsyms.go":   "/proc/kallsyms",
	"internal/perfevent/program.go":    "/proc/PID/status",
	"internal/procroot/procroot.go":    "directories, without following links",
	"internal/recording/file.go":       "moments that tests have recorded",
	"internal/target/core/files.go":    "a directory, with O_PATH",
	"internal/target/live/access.go":   "/proc/PID/exe, which the kernel has executed",
	"internal/target/live/blocked.go":  "/proc/PID/task/TID/schedstat and syscall",
	"internal/target/live/files.go":    "/proc/PID/root, with O_PATH",
	"internal/target/live/findings.go": "/proc/PID, with O_PATH",
	"internal/target/live/memory.go":   "/proc/PID/mem",
	"internal/target/live/process.go":  "/proc/PID, with O_PATH",
	"internal/target/live/procfs.go":   "files of /proc/PID",
	"internal/target/live/threads.go":  "/proc/PID/task",
}

// opening are functions that open a file.
var opening = map[string]bool{
	"os.Open": true, "os.OpenFile": true, "os.ReadFile": true, "os.OpenRoot": true, "os.OpenInRoot": true, "os.DirFS": true,
	"unix.Open": true, "unix.Openat": true, "unix.Openat2": true, "syscall.Open": true, "elf.Open": true, "zip.OpenReader": true,
}

// TestWhoOpensFiles: a file that a target or another file names is opened by
// internal/foreign and nobody else.
func TestWhoOpensFiles(t *testing.T) {
	used := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch path {
			case "testdata", "examples", "scripts", ".git", "bin", "internal/testenv", "internal/clr/clrtest": // for tests, or not Go
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok && opening[of.Name+"."+s.Sel.Name] {
					if used[path] = true; mayOpen[path] == "" {
						t.Errorf("%v: %s.%s: a stranger may have chosen the file: internal/foreign opens such files", set.Position(s.Pos()), of.Name, s.Sel.Name)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range mayOpen {
		if !used[path] {
			t.Errorf("%s opens no file any more", path)
		}
	}
}
