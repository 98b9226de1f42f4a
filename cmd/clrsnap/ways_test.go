package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"
)

// seal makes the kernel refuse system calls, as the seccomp profiles of containers do, and becomes another program.
var seal = role.New("sealed", func(a role.Args) error {
	if err := testenv.DenySyscalls(strings.Split(a[0], ",")...); err != nil {
		return err
	}
	path, err := exec.LookPath(a[1])
	if err != nil {
		return err
	}
	return syscall.Exec(path, a[1:], os.Environ())
})

// way is a machine that does not let clrsnap have the best way of reading threads.
type way struct {
	name, prepare string   // what is mounted in a mount namespace of clrsnap's own
	sealed        string   // refused system calls
	doctor        []string // lines of the doctor
	reason        string   // why the registers are not the kernel's; "": they are
}

func (w *way) command(args ...string) *exec.Cmd {
	words := append([]string{"clrsnap"}, args...)
	cmd := exec.Command(words[0], words[1:]...)
	if w.sealed != "" {
		list := []any{w.sealed}
		for _, a := range words {
			list = append(list, a)
		}
		cmd = seal.Command(list...)
	}
	if w.prepare != "" {
		path := cmd.Path
		if own, err := os.Executable(); err == nil && w.sealed != "" {
			path = own // the shell has another /proc/self/exe
		}
		cmd.Path = "/bin/sh"
		cmd.Args = append([]string{"sh", "-c", "mount --make-rprivate / && " + w.prepare + ` && exec "$0" "$@"`, path},
			cmd.Args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	}
	return cmd
}

const lockdown = "mount -t tmpfs none /sys/kernel/security && " +
	"echo 'none integrity [confidentiality]' >/sys/kernel/security/lockdown"

var ways = []way{
	{name: "the best", doctor: []string{` registers +told by the kernel`}},
	{
		name: "no BTF", prepare: "mount -t tmpfs none /sys/kernel/btf",
		doctor: []string{` registers +threads that are not blocked are stopped .*CONFIG_DEBUG_INFO_BTF`},
		reason: "CONFIG_DEBUG_INFO_BTF",
	},
	{
		name: "seccomp", sealed: "bpf",
		doctor: []string{` registers +threads that are not blocked are stopped .*CAP_BPF and CAP_PERFMON`},
		reason: "CAP_BPF and CAP_PERFMON",
	},
	{
		name: "seccomp of everything", sealed: "bpf,perf_event_open,process_vm_readv",
		doctor: []string{
			` registers +threads that are not blocked are stopped`, ` record +by the clock only \(--mode wall\)`,
		},
		reason: "CAP_BPF and CAP_PERFMON",
	},
	{
		name: "lockdown", prepare: lockdown, sealed: "bpf",
		doctor: []string{` registers +threads that are not blocked are stopped .*locked down for confidentiality`},
		reason: "locked down for confidentiality",
	},
}

// TestWays: where the kernel does not tell registers, threads are asked to stop together, all stacks are there, and the
// doctor says why in one line.
func TestWays(t *testing.T) {
	layer.Live(t)
	threads := max(12, 4*runtime.NumCPU())
	app := testenv.Start(t, "busy", testenv.Options{Args: []string{"--threads", strconv.Itoa(threads)}})
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			r := finish(t, w.command("doctor"))
			if w.reason == "" && strings.Contains(r.stdout, "threads that are not blocked are stopped") {
				layer.Lacking(t, "the kernel does not tell registers")
			}
			if strings.Contains(r.stderr, "mount:") {
				layer.Lacking(t, r.stderr)
			}
			r.want(t, w.doctor...)
			testenv.UntilSeen(t, func() string { return busyStacks(t, w, app.PID, threads) })
		})
	}
	livetest.EndsWell(t, app)
}

// busyStacks takes the stacks of computing threads, and returns what is missing.
func busyStacks(t *testing.T, w way, pid, threads int) string {
	t.Helper()
	r := finish(t, w.command("stack", strconv.Itoa(pid), "--json", "--group=never"))
	var doc struct {
		Registers struct{ From, Reason string }
		Stops     int
		Threads   []struct {
			Name     string
			Complete bool
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || r.status > 1 {
		t.Fatalf("status %d, %v: %s", r.status, err, r.stderr)
	}
	complete := 0
	for _, thread := range doc.Threads {
		if thread.Complete && strings.HasPrefix(thread.Name, "busy-") {
			complete++
		}
	}
	g := &doc.Registers
	from := map[bool]string{true: "kernel", false: "together"}[w.reason == ""]
	if complete != threads || g.From != from || !strings.Contains(g.Reason, w.reason) ||
		(doc.Stops == 0) != (w.reason == "") {
		return fmt.Sprintf("%s: %d stacks of %d threads, %d stops, %+v", w.name, complete, threads, doc.Stops, *g)
	}
	return ""
}
