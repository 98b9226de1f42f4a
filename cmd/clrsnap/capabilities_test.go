package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// The sets of docs/permissions.md for programs of other users.
var (
	toLook        = []uintptr{unix.CAP_SYS_PTRACE}
	toSample      = append(toLook, unix.CAP_PERFMON, unix.CAP_BPF)
	toRecordEvent = append(toLook, unix.CAP_DAC_OVERRIDE, unix.CAP_SETUID, unix.CAP_SETGID)
)

// otherUser is neither root nor nobody.
const otherUser = 65533

// strangersApp runs a program as another user, from a folder that everybody can read. files is a folder that everybody
// can write to.
func strangersApp(t *testing.T, dir string) (app *testenv.App, files string) {
	t.Helper()
	return publicApp(t, dir, otherUser, func(string) {})
}

// publicApp is strangersApp for a user, with something that is done to the file of the .NET host before the start.
func publicApp(t *testing.T, dir string, user uint32, do func(host string)) (app *testenv.App, files string) {
	t.Helper()
	files = dir + "/files"
	must(t, os.Mkdir(files, 0o777))
	must(t, os.Chmod(files, 0o777|os.ModeSticky))
	host := testenv.Kit(t).Host(testenv.DefaultRuntime)
	dll := testenv.Build(t, "events")
	for _, args := range [][]string{
		{"-rL", filepath.Dir(host), dir + "/net"}, {"-rL", filepath.Dir(dll), dir + "/app"}, {"a+rX", "-R", dir},
	} {
		tool := "cp"
		if args[1] == "-R" {
			tool = "chmod"
		}
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	prepare := func(c *exec.Cmd) {
		c.Path = filepath.Join(dir, "net", filepath.Base(host))
		do(c.Path)
		c.Args[0], c.Args[1] = c.Path, filepath.Join(dir, "app", filepath.Base(dll))
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	app = testenv.Start(t, "events", testenv.Options{
		Env: []string{"TMPDIR=" + files}, Dir: "/", Prepare: prepare,
	})
	return app, files
}

// paranoid is kernel.perf_event_paranoid.
func paranoid(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	must(t, err)
	level, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	return level
}

// verb is a run of clrsnap on the other user's program.
type verb struct {
	name  string
	needs []uintptr
	args  []string
	shows string // on standard output, or in the recording
	// less has the outcome without one of the capabilities.
	less map[uintptr]lack
}

type lack struct {
	status int
	says   string
}

// TestDoctorOfRegisters: the doctor tells a user without the right to read registers from the kernel how to get the
// right.
func TestDoctorOfRegisters(t *testing.T) {
	if asNobody("true").Run() != nil {
		t.Skip("SKIPPED, NOTHING WAS TESTED: this needs root")
	}
	dir, c, err := nobodysCommand()
	must(t, err)
	defer os.RemoveAll(dir)
	cmd := exec.Command(c.Path, "doctor")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	finish(t, cmd).want(t,
		` +registers +threads that are not blocked are stopped .*: that takes CAP_BPF and CAP_PERFMON$`)
}

// TestCapabilities: with exactly the documented capabilities, a user without rights can read and record a program of
// another user. If a capability is missing, there is one clear sentence.
func TestCapabilities(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	if asNobody("true").Run() != nil {
		t.Skip("SKIPPED, NOTHING WAS TESTED: this needs root")
	}
	dir, c, err := nobodysCommand()
	must(t, err)
	defer os.RemoveAll(dir)
	app, files := strangersApp(t, dir)
	pid := fmt.Sprint(app.PID)
	record := filepath.Join(files, "a.clrsnap")

	denied := lack{
		1, `^clrsnap: cannot attach to ` + pid + `: operation not permitted \(it runs as uid 65533 .*: run as .*\n$`,
	}
	eventLack := func(name string) lack {
		return lack{
			1, `^clrsnap: cannot load the agent into process ` + pid + `: the process belongs to another user ` +
				`\(clrsnap lacks ` + name + `\): run clrsnap as user 65533 or as root, or give clrsnap these ` +
				`capabilities and CAP_SYS_PTRACE\n`,
		}
	}
	sampling := map[uintptr]lack{
		unix.CAP_SYS_PTRACE: denied,
		unix.CAP_PERFMON: {
			0, `^clrsnap: note: The kernel sampled each thread by a timer of its own, because .*CAP_PERFMON`,
		},
		unix.CAP_BPF: {
			0, `^clrsnap: note: The kernel copied a stack for every sample of every program, .*CAP_BPF`,
		},
	}
	verbs := []verb{
		{name: "ps", needs: toLook, args: []string{"ps"}, shows: `^ *` + pid + ` +\S+ +10\.0\.\d+ `,
			less: map[uintptr]lack{unix.CAP_SYS_PTRACE: {0, ``}}},
		{name: "stack", needs: toLook, args: []string{"stack", pid}, shows: `^    Events\.Program\.Main`,
			less: map[uintptr]lack{unix.CAP_SYS_PTRACE: denied}},
		{name: "record --mode wall", needs: toSample,
			args:  []string{"record", "--mode", "wall", "-d", "1s", "-o", record, pid},
			shows: `Events\.`, less: sampling},
		{name: "record --mode cpu", needs: toSample,
			args:  []string{"record", "--mode", "cpu", "-d", "1s", "-o", record, pid},
			shows: `Events\.`, less: sampling},
		{name: "record", needs: toSample, args: []string{"record", "-d", "1s", "-o", record, pid},
			shows: `Events\.`, less: sampling},
		{name: "record --event", needs: toRecordEvent,
			args:  []string{"record", "--event", "exception", "-d", "1s", "-o", record, pid},
			shows: `Exception`, less: map[uintptr]lack{
				unix.CAP_SYS_PTRACE:   denied,
				unix.CAP_DAC_OVERRIDE: eventLack("CAP_DAC_OVERRIDE"),
				unix.CAP_SETUID:       eventLack("CAP_SETUID"),
				unix.CAP_SETGID:       eventLack("CAP_SETGID"),
			}},
	}
	prepare := func(program string, v verb) *exec.Cmd {
		os.Remove(record) // the file may not exist
		c := exec.Command(program, v.args...)
		c.Dir, c.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + files}
		return c
	}
	run := func(t *testing.T, program string, v verb, caps []uintptr) result {
		t.Helper()
		for {
			c := prepare(program, v)
			c.SysProcAttr = &syscall.SysProcAttr{
				Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: caps,
			}
			// A thread that does not get a CPU has no stack, and clrsnap says to try again.
			if r := finish(t, c); !strings.Contains(r.stderr, "another attempt may get them") {
				return r
			}
		}
	}
	works := func(t *testing.T, v verb, r result) {
		t.Helper()
		r.says(t, 0)
		if strings.Contains(r.stderr, "note: The kernel") || strings.Contains(r.stderr, "warning") {
			t.Errorf("not as well as it could be:\n%s", r.stderr)
		}
		if v.args[0] == "record" {
			r = good(t, "view", record)
		}
		r.want(t, v.shows)
	}
	for _, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			works(t, v, run(t, c.Path, v, v.needs))
			for _, less := range v.needs {
				t.Run("without "+cap.Value(less).String(), func(t *testing.T) {
					if level := paranoid(t); less == unix.CAP_PERFMON && level != 1 && level != 2 {
						t.Skipf("SKIPPED, NOTHING WAS TESTED: "+
							"kernel.perf_event_paranoid is %d, and the capability is for 1 and 2", level)
					}
					want := v.less[less]
					caps := slices.DeleteFunc(slices.Clone(v.needs), func(c uintptr) bool { return c == less })
					r := run(t, c.Path, v, caps)
					r.says(t, want.status, want.says)
					if want.status != 0 && strings.Count(r.stderr, "\n") > 2 { // the first line says what is recorded
						t.Errorf("more than one sentence:\n%s", r.stderr)
					}
					if v.name == "ps" {
						r.want(t, `^ +✗ cannot attach to `+pid+`: operation not permitted .* run as `)
					}
				})
			}
		})
	}

	// Root in a container has only the container's capabilities.
	for _, v := range verbs {
		t.Run("root with these only/"+v.name, func(t *testing.T) {
			c := prepare(c.Path, v)
			results := make(chan result)
			go func() {
				runtime.LockOSThread() // for good: the thread ends with this goroutine
				if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
					t.Error(err)
				}
				for n := cap.Value(0); n < cap.MaxBits(); n++ {
					if !slices.Contains(v.needs, uintptr(n)) {
						if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
							t.Error(err)
						}
					}
				}
				results <- finish(t, c)
			}()
			works(t, v, <-results)
		})
	}

	// A program with file capabilities is not dumpable: some of its files in /proc belong to
	// root.
	t.Run("setcap", func(t *testing.T) {
		var st unix.Statfs_t
		must(t, unix.Statfs(dir, &st))
		if st.Flags&unix.ST_NOSUID != 0 {
			t.Skipf("SKIPPED, NOTHING WAS TESTED: %s is mounted nosuid", dir)
		}
		for i, v := range verbs {
			t.Run(v.name, func(t *testing.T) {
				program := fmt.Sprintf("%s/with-%d/clrsnap", dir, i)
				must(t, os.Mkdir(filepath.Dir(program), 0o755))
				if out, err := exec.Command("cp", c.Path, program).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				set := cap.NewSet()
				for _, needed := range v.needs {
					must(t, set.SetFlag(cap.Permitted, true, cap.Value(needed)))
					must(t, set.SetFlag(cap.Effective, true, cap.Value(needed)))
				}
				must(t, set.SetFile(program))
				works(t, v, run(t, program, v, nil))
			})
		}
	})

	t.Run("doctor", func(t *testing.T) {
		doctor := verb{args: []string{"doctor", pid}}
		r := run(t, c.Path, doctor, slices.Concat(toSample, toRecordEvent[1:]))
		r.says(t, 0)
		r.want(t, `^clrsnap itself:$`, `^ok +user +uid 65534 gid 65534, `,
			`^ok +capabilities +CAP_SYS_PTRACE, CAP_PERFMON, CAP_BPF, CAP_DAC_OVERRIDE, CAP_SETUID, CAP_SETGID$`,
			`^ok +ps, stack +processes of all users`, `^ok +record +CPU samples of each CPU, .*the best of three ways$`,
			`^ok +record --event +processes of all users`, `^process `+pid+`:$`, `^ok +stacks `, `^ok +events `)
		r = run(t, c.Path, verb{args: []string{"doctor"}}, nil)
		r.says(t, 0)
		r.want(t, `^ok +capabilities +none$`,
			`^ok +record --event +processes of user 65534; `+
				`those of others take CAP_SYS_PTRACE, CAP_DAC_OVERRIDE, CAP_SETUID, CAP_SETGID$`)
		if regexp.MustCompile(`processes of all users`).MatchString(r.stdout) {
			t.Errorf("it promises too much:\n%s", r.stdout)
		}
		good(t, "doctor").want(t, `^ok +capabilities +CAP_SYS_PTRACE.* that serve for nothing here$`,
			`→ fewer do: .*setcap cap_sys_ptrace,cap_perfmon,cap_bpf\+ep`)
	})
}
