package snapshot

import (
	"slices"
	"strings"
)

// ProgramOf returns the program of a command line, without the program's folder, and the program's
// arguments. For "dotnet exec --runtimeconfig x.json app.dll 80" the results are app.dll and 80. For
// work of the dotnet command itself, for example "dotnet run", the program is dotnet.
//
// The process itself writes its command line. The name has at most as many bytes as the name of a
// file can have.
func ProgramOf(args []string) (name string, rest []string) {
	if len(args) == 0 {
		return "", nil
	}
	if isMuxer(args[0]) {
		if i := managedArgument(args); i > 0 {
			return fileName(args[i]), args[i+1:]
		}
	}
	return fileName(args[0]), args[1:]
}

// isMuxer reports whether a program is the dotnet command. The command refuses to run under another
// name (exe_start in src/native/corehost/corehost.cpp).
func isMuxer(path string) bool { return strings.EqualFold(base(path), "dotnet") }

// The options that dotnet takes before the program, each with one value, and the options that dotnet
// takes after "exec" only (src/native/corehost/fxr/command_line.cpp). Upper and lower case are equal.
var (
	hostOptions = []string{
		"--additionalprobingpath", "--fx-version", "--roll-forward", "--additional-deps",
		"--roll-forward-on-no-candidate-fx",
	}
	execOptions = []string{"--depsfile", "--runtimeconfig"}
)

// managedArgument finds the assembly that dotnet runs; 0: none.
func managedArgument(args []string) int {
	at := 1
	exec := len(args) > 1 && strings.EqualFold(args[1], "exec")
	if exec {
		at++
	}
	for at < len(args) && isOption(args[at], exec) {
		at += 2
	}
	if at < len(args) && isManaged(args[at]) {
		return at
	}
	return 0
}

func isOption(arg string, exec bool) bool {
	same := func(option string) bool { return strings.EqualFold(option, arg) }
	return slices.ContainsFunc(hostOptions, same) || exec && slices.ContainsFunc(execOptions, same)
}

func isManaged(path string) bool {
	if len(path) < len(".dll") {
		return false
	}
	end := path[len(path)-len(".dll"):]
	return strings.EqualFold(end, ".dll") || strings.EqualFold(end, ".exe")
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// maxFileName is NAME_MAX of include/uapi/linux/limits.h.
const maxFileName = 255

func fileName(path string) string {
	name := base(path)
	return strings.ToValidUTF8(name[:min(len(name), maxFileName)], "\uFFFD")
}

// Program returns the file name of the program, without its folder. For "dotnet
// app.dll" that is "app.dll", not "dotnet".
func (p *Process) Program() string {
	words := strings.Fields(p.Command)
	name, rest := ProgramOf(words)
	if len(rest) == 0 || !isMuxer(name) || !strings.Contains(rest[0], "/") {
		return name
	}
	// A path with a blank has become two words.
	if i := slices.IndexFunc(rest, isManaged); i >= 0 {
		return fileName(rest[i])
	}
	return name
}
