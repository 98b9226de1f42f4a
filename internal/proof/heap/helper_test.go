package heap

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// take reads the heap, within a time after which a read counts as hung.
func take(t *testing.T, p *clrsnap.Process, o clrsnap.HeapOptions) *snapshot.Heap {
	t.Helper()
	const hung = 2 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	h, err := p.Heap(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if h.Partial {
		t.Fatalf("it was not done after %v", hung)
	}
	return h
}

// amounts are the objects of each type. A type without objects has no entry.
func amounts(h *snapshot.Heap) map[string]snapshot.HeapAmount {
	out := map[string]snapshot.HeapAmount{}
	for i := range h.Types {
		a := out[h.Types[i].Name]
		a.Add(h.Types[i].HeapAmount)
		out[h.Types[i].Name] = a
	}
	return out
}

// truth is the program's own count, for the types whose objects the program knows completely.
func truth(t *testing.T, a *testenv.App) map[string]snapshot.HeapAmount {
	t.Helper()
	out := map[string]snapshot.HeapAmount{}
	for _, line := range a.Ask("truth") {
		f := strings.Split(line, "\t")
		out[f[0]] = snapshot.HeapAmount{Count: number(t, f[1]), Bytes: number(t, f[2])}
	}
	if len(out) < 12 {
		t.Fatalf("the program knows %d types", len(out))
	}
	return out
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// wrongTypes are the types without objects in the program.
func wrongTypes(h *snapshot.Heap) (wrong []string) {
	for i := range h.Types {
		if n := h.Types[i].Name; n == "Shop.Never" || strings.HasPrefix(n, "[") {
			wrong = append(wrong, n)
		}
	}
	return wrong
}

// differing are the types with other amounts than the program's own.
func differing(h *snapshot.Heap, want map[string]snapshot.HeapAmount) (names []string) {
	got := amounts(h)
	for name, w := range want {
		if got[name] != w {
			names = append(names, name)
		}
	}
	return names
}

// moreCPUs returns the environment of a program that takes this machine for a machine with so many CPUs: the
// collector of servers makes no more heaps than there are CPUs.
func moreCPUs(t *testing.T, n int) []string {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "cpus.c"), filepath.Join(dir, "cpus.so")
	const text = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>
long sysconf(int name) {
	static long (*real)(int);
	if (name == _SC_NPROCESSORS_CONF || name == _SC_NPROCESSORS_ONLN) return CPUS;
	if (!real) real = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
	return real(name);
}
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
	(void)pid;
	memset(set, 0, size);
	for (int i = 0; i < CPUS; i++) CPU_SET_S(i, size, set);
	return 0;
}
int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set) { (void)pid; (void)size; (void)set; return 0; }
`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := exec.Command(testenv.CC(t), "-shared", "-fPIC", "-O1", "-DCPUS="+strconv.Itoa(n), "-o", library,
		source, "-ldl")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return []string{"LD_PRELOAD=" + library}
}
