package diagnostics

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Socket returns the path of the diagnostics socket of process pid, as this
// process sees it. The runtime names it after its own PID, as it knows it inside
// its PID namespace, and its start time, and puts it in its $TMPDIR or /tmp
// (src/coreclr/pal/src/thread/process.cpp, PAL_GetTransportName).
func Socket(pid int) (string, error) {
	nspid, err := innermostPID(pid)
	if err != nil {
		return "", err
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	dir := temporaryDir(pid)
	pattern := filepath.Join(root, dir, fmt.Sprintf("dotnet-diagnostic-%s-*-socket", nspid))
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	// One that an earlier process with this PID left behind is older.
	newest, when := "", int64(0)
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.ModTime().UnixNano() >= when {
			newest, when = path, info.ModTime().UnixNano()
		}
	}
	if newest == "" {
		return "", fmt.Errorf("process %d has no diagnostics socket in %s: it is not a .NET process, or runs with DOTNET_EnableDiagnostics=0", pid, dir)
	}
	return newest, nil
}

// temporaryDir is where process pid puts temporary files.
func temporaryDir(pid int) string {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil {
		for _, v := range bytes.Split(env, []byte{0}) {
			if dir, ok := strings.CutPrefix(string(v), "TMPDIR="); ok && dir != "" {
				return dir
			}
		}
	}
	return "/tmp"
}

// innermostPID is what process pid takes its own PID to be.
func innermostPID(pid int) (string, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(status), "\n") {
		if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if f := strings.Fields(list); len(f) > 0 {
				return f[len(f)-1], nil
			}
		}
	}
	return "", fmt.Errorf("/proc/%d/status has no NSpid", pid)
}
