package clrsnap_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mayOpen are the source files that open files themselves, and which files. All other files may be a stranger's:
// internal/foreign opens a stranger's files.
var mayOpen = map[string]string{
	"cmd/clrsnap/place.go": "the directory of an output, and what is there if it is not a stranger's",
	"cmd/clrsnap/view.go":  "what the user names, which may be a pipe of the user's",

	"internal/confine/confine.go":       "what may still be read, with O_PATH",
	"internal/diagnostics/socket.go":    "a socket, with O_PATH",
	"internal/foreign/foreign.go":       "anything, after it has looked at it",
	"internal/inject/folder.go":         "a folder that we have made",
	"internal/inject/trust.go":          "a directory, by a descriptor, after it was checked",
	"internal/perfevent/generation.go":  "/sys/devices/system/cpu",
	"internal/perfevent/kallsyms.go":    "/proc/kallsyms",
	"internal/perfevent/missed.go":      "/proc/stat",
	"internal/procfs/dir.go":            "/proc/PID, with O_PATH, and files of it, /proc/sys",
	"internal/procfs/lists.go":          "/proc",
	"internal/procfs/machine.go":        "/proc/stat",
	"internal/target/core/files.go":     "a directory, with O_PATH",
	"internal/target/iter/program.go":   "/sys/kernel/security/lockdown",
	"internal/target/iter/types.go":     "/sys/kernel/btf/vmlinux",
	"internal/target/live/access.go":    "/proc/PID/exe, which the kernel has executed",
	"internal/target/live/blocked.go":   "/proc/PID/task/TID/schedstat and syscall",
	"internal/target/live/memory.go":    "/proc/PID/mem",
	"internal/target/recorded/store.go": "moments that tests have recorded",
	"symbols/cache.go": "a directory that only this user can change, and files there, without " +
		"following links",
}

// opening are functions that open a file.
var opening = map[string]bool{
	"os.Open": true, "os.OpenFile": true, "os.ReadFile": true, "os.OpenRoot": true, "os.OpenInRoot": true,
	"os.DirFS": true, "unix.Open": true, "unix.Openat": true, "unix.Openat2": true, "syscall.Open": true,
	"elf.Open": true, "zip.OpenReader": true,
}

// TestWhoOpensFiles: only internal/foreign opens files whose names come from a target or from another file.
func TestWhoOpensFiles(t *testing.T) {
	used := map[string]bool{}
	eachSource(t, func(path string, set *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok && opening[of.Name+"."+s.Sel.Name] {
					if used[path] = true; mayOpen[path] == "" {
						t.Errorf("%v: %s.%s: a stranger may have chosen the file: internal/foreign opens such files",
							set.Position(s.Pos()), of.Name, s.Sel.Name)
					}
				}
			}
			return true
		})
	})
	for path := range mayOpen {
		if !used[path] {
			t.Errorf("%s opens no file any more", path)
		}
	}
}

// byNumber are the source files that name a process in /proc by its id, and why. All other source files go through
// internal/procfs, because the kernel reuses the id of an ended process.
var byNumber = map[string]string{
	"internal/procfs/dir.go":        "holds on to a process",
	"internal/procfs/lists.go":      "lists processes, and whose they are",
	"internal/target/core/files.go": "knows the names of files that are none",
}

// inProc matches a text from which the path of a process is made.
var inProc = regexp.MustCompile(`^/proc/?$|/proc/%`)

// TestWhoNamesProcesses: only the files of byNumber make the path of a process.
func TestWhoNamesProcesses(t *testing.T) {
	used := map[string]bool{}
	eachSource(t, func(path string, set *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
				if text, err := strconv.Unquote(s.Value); err == nil && inProc.MatchString(text) {
					if used[path] = true; byNumber[path] == "" {
						t.Errorf("%v: %s: the number may be another process's by now: "+
							"use a procfs.Dir, as of live.Process", set.Position(s.Pos()), s.Value)
					}
				}
			}
			return true
		})
	})
	for path := range byNumber {
		if !used[path] {
			t.Errorf("%s names no process any more", path)
		}
	}
}

// eachSource parses the source files of the product.
func eachSource(t *testing.T, do func(path string, set *token.FileSet, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch path {
			case "testdata", "examples", "scripts", ".git", "bin",
				"internal/testenv", "internal/livetest", "internal/proof",
				"internal/clr/clrtest", "internal/profiletest": // for tests, or not Go
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
		do(path, set, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
