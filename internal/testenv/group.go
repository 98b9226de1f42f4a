package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// LimitCPU gives a process a quota of CPUs, by a control group of its own, until the end of the test. An error says why
// this machine cannot.
func LimitCPU(tb testing.TB, pid int, cpus float64) error {
	tb.Helper()
	const period = 100_000 // microseconds: the kernel's own choice
	dir, err := NewGroup(tb, "cpu")
	if err != nil {
		return err
	}
	quota := strconv.Itoa(int(cpus * period))
	if SetGroup(dir, quota+" "+strconv.Itoa(period), "cpu.max") != nil {
		if err := SetGroup(dir, quota, "cpu.cfs_quota_us"); err != nil {
			return err
		}
	}
	return SetGroup(dir, strconv.Itoa(pid), "cgroup.procs")
}

// NewGroup makes a control group with a controller below our own group, until the end of the test. An error says why
// this machine cannot.
func NewGroup(tb testing.TB, controller string) (dir string, err error) {
	tb.Helper()
	parent, err := ownGroup(controller)
	if err == nil {
		dir, err = os.MkdirTemp(parent, "clrsnap-test-")
	}
	if err != nil {
		return "", fmt.Errorf("no control group with the controller %s can be made: %w", controller, err)
	}
	tb.Cleanup(func() {
		if err := moveAll(dir, parent); err != nil {
			tb.Error(err)
		}
		if err := os.Remove(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir, nil
}

// SetGroup writes a text into the first of some files that a control group has.
func SetGroup(dir, text string, files ...string) error {
	for _, file := range files {
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return fmt.Errorf("a control group cannot be set up: %w", err)
		}
		return nil
	}
	return fmt.Errorf("a control group cannot be set up: %s has no %s", dir, strings.Join(files, " and no "))
}

// ownGroup is the folder of this process's control group.
func ownGroup(controller string) (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	v2 := ""
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[0] == "0" {
			v2 = filepath.Join("/sys/fs/cgroup", part[2])
		}
		if part[1] == controller {
			return filepath.Join("/sys/fs/cgroup", controller, part[2]), nil
		}
	}
	if _, err := os.Stat(filepath.Join(v2, "cgroup.controllers")); err != nil {
		return "", errors.New("none is mounted")
	}
	return v2, nil
}

// moveAll moves all processes of a control group to another group.
func moveAll(from, to string) error {
	text, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
	if err != nil {
		return err
	}
	for pid := range strings.FieldsSeq(string(text)) {
		err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(pid), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
