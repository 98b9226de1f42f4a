package agent_test

import (
	"debug/elf"
	"os"
	"slices"
	"testing"
)

// everyLibcHas lists the agent's calls. All of them are in glibc from the beginning, or from 2.12
// on (pthread_setname_np), and in musl.
var everyLibcHas = []string{
	"__errno_location", "__tls_get_addr", "clock_gettime", "close", "connect", "fcntl", "getenv", "getpid", "lseek",
	"memcmp", "memcpy", "memset", "mmap", "munmap", "nanosleep", "open", "poll",
	"pthread_attr_destroy", "pthread_attr_init",
	"pthread_attr_setdetachstate", "pthread_attr_setstacksize",
	"pthread_create", "pthread_self", "pthread_setname_np", "pthread_sigmask", "recv", "recvmsg", "send", "shutdown",
	"sigdelset", "sigfillset",
	"socket", "strlen", "syscall",
}

// TestLibrary checks the requirements of the library, because it is loaded into other people's
// processes: small, for any libc, with hardly any thread-local memory and two exported names, and
// never unloaded.
func TestLibrary(t *testing.T) {
	lib := library(t)
	if info, err := os.Stat(lib); err != nil || info.Size() > 44<<10 {
		t.Errorf("the library has %d bytes (%v)", info.Size(), err)
	}
	f, err := elf.Open(lib)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) != 0 {
		t.Errorf("it needs %v (%v)", libs, err)
	}
	if flags, err := f.DynValue(elf.DT_FLAGS_1); err != nil || len(flags) != 1 ||
		elf.DynFlag1(flags[0])&elf.DF_1_NODELETE == 0 {
		t.Errorf("DT_FLAGS_1 %v (%v)", flags, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_TLS && p.Memsz > 96 {
			t.Errorf("it has %d bytes of thread-local storage", p.Memsz)
		}
		if p.Type == elf.PT_LOAD && p.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
			t.Error("it has a segment that is writable and executable")
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			exported = append(exported, s.Name)
		} else if s.Version != "" || !slices.Contains(everyLibcHas, s.Name) {
			t.Errorf("it needs %s, version %q", s.Name, s.Version)
		}
	}
	slices.Sort(exported)
	if !slices.Equal(exported, []string{"DllCanUnloadNow", "DllGetClassObject"}) {
		t.Errorf("it exports %v", exported)
	}
}
