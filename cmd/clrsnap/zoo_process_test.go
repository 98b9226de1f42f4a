package main

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

// hostileProcesses are programs that try to make their readers run out of memory or time.
var hostileProcesses = []struct {
	name  string
	begin func(*hostile)
	long  bool // a read takes seconds, and is like the read of another process: for proof
}{
	{name: "one-file-mapped-often",
		begin: func(h *hostile) { h.visit(64, h.write(image{hdr: 120 << 20, frames: 120 << 20})) }},
	{name: "many-files",
		begin: func(h *hostile) { h.visit(1, h.files(64, image{hdr: 120 << 20, frames: 120 << 20})...) }},
	{name: "no-search-table",
		begin: func(h *hostile) { h.visit(1, h.files(4, image{frames: 48 << 20, dense: true})...) }},
	{name: "many-segments",
		begin: func(h *hostile) { h.visit(16, h.files(256, image{frames: 4096, segments: 4095})...) }},
	{name: "many-sections",
		begin: func(h *hostile) { h.visit(1, h.files(64, image{frames: 4096, sections: 65_000})...) }},
	{name: "many-symbols",
		begin: func(h *hostile) { h.visit(8, h.write(image{frames: 4096, symbols: 2 << 20})) }},
	{name: "long-symbols", long: true,
		begin: func(h *hostile) {
			h.climb(h.write(image{frames: 4096, code: 1 << 20, symbols: 1 << 20, names: 4000}))
		}},
	{name: "many-mappings-of-a-long-path",
		begin: func(h *hostile) { h.mapOften(60_000, h.write(image{frames: 4096, path: 3800})) }},
	{name: "many-mappings", long: true,
		begin: func(h *hostile) { h.mapOften(60_000, h.write(image{frames: 4096})) }},
	{name: "many-mappings-and-threads", long: true,
		begin: func(h *hostile) { h.mapOften(60_000, h.write(image{frames: 4096})); h.recurse(500, 4<<10) }},
	{name: "deep-stacks", begin: func(h *hostile) { h.recurse(100, 8<<20) }},
	{name: "many-threads", long: true, begin: func(h *hostile) { h.recurse(10_000, 4<<10) }},
}

// startHostile starts a hostile process and waits until the process is ready.
func startHostile(t *testing.T, name string) (pid int) {
	t.Helper()
	// If ps knows that an executable has no runtime, ps reads only one process of the executable.
	folder := t.TempDir()
	c := beHostile.Command(name, folder)
	c.Path = filepath.Join(folder, "hostile")
	if err := role.Copy(c.Path); err != nil {
		t.Fatal(err)
	}
	c.Env = append(c.Env, "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	c.Stderr = os.Stderr
	in, err := c.StdinPipe() // the end of the input is the end of the process
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s: %q, %v", name, line, err)
	}
	return c.Process.Pid
}

// beHostile runs in the process of startHostile. Its arguments are the name and a folder.
var beHostile = role.New("hostile", func(a role.Args) error {
	h := &hostile{folder: a[1], next: 0x2000_0000_0000}
	for _, p := range hostileProcesses {
		if p.name == a[0] {
			p.begin(h)
			fmt.Println("ready")
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		}
	}
	return fmt.Errorf("there is no hostile process %s", a[0])
})

// hostile is a hostile process, seen from inside.
type hostile struct {
	folder string
	count  int
	next   uintptr // where the next mapping goes
}

// orEnd ends the hostile process if there is an error. The parent reports the error.
func orEnd(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func got[T any](v T, err error) T {
	orEnd(err)
	return v
}

// image describes a bad ELF file. Parts of the file are holes if possible.
type image struct {
	hdr, frames int64 // bytes of .eh_frame_hdr and .eh_frame
	dense       bool  // .eh_frame is full, and has no search table
	segments    int   // beside the segment that matters
	sections    int
	code        int64 // bytes; 0: one page
	symbols     int
	names       int // bytes of each symbol's name
	path        int // bytes of the file's own path
}

// elfFile is a file with one function, and the function's place.
type elfFile struct {
	path string
	code int64 // offset, and link-time address
	size int64
}

const page = 4096

func pages(n int64) int64 { return (n + page - 1) &^ (page - 1) }

func (h *hostile) files(n int, m image) (out []elfFile) {
	for range n {
		out = append(out, h.write(m))
	}
	return out
}

// write makes an ELF file. The whole file is one segment, and addresses are offsets.
func (h *hostile) write(m image) elfFile {
	h.count++
	dir := h.folder
	for len(dir) < m.path {
		dir = filepath.Join(dir, strings.Repeat("x", min(200, max(1, m.path-len(dir)-1))))
	}
	orEnd(os.MkdirAll(dir, 0o700))
	f := got(os.Create(filepath.Join(dir, fmt.Sprintf("lib%d.so", h.count))))
	defer f.Close()

	hdr := int64(1 << 20) // behind the program headers
	frame := hdr + pages(m.hdr)
	symtab := frame + pages(m.frames)
	strtab := symtab + pages(int64(m.symbols)*24)
	shdrs := strtab + pages(int64(m.names)*2+64)
	code := shdrs + pages(int64(m.sections+8)*64)
	size := max(m.code, page)
	end := code + size
	orEnd(f.Truncate(end))

	put := func(at int64, parts ...any) {
		w := bufio.NewWriterSize(io.NewOffsetWriter(f, at), 1<<20)
		for _, p := range parts {
			orEnd(binary.Write(w, binary.LittleEndian, p))
		}
		orEnd(w.Flush())
	}
	sections := 5 + m.sections
	put(0, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{
			0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
		},
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
		Phoff: 64, Phentsize: 56, Phnum: uint16(min(2+m.segments, 4096)),
		Shoff: uint64(shdrs), Shentsize: 64, Shnum: uint16(sections), Shstrndx: 4,
	}, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: uint64(end),
		Memsz: uint64(end), Align: page})
	if m.hdr > 0 {
		put(64+56, elf.Prog64{
			Type: uint32(elf.PT_GNU_EH_FRAME), Off: uint64(hdr), Vaddr: uint64(hdr), Filesz: uint64(m.hdr),
			Memsz: uint64(m.hdr),
		})
	}
	progs := make([]elf.Prog64, m.segments)
	for i := range progs {
		progs[i] = elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: 1 << 20, Vaddr: uint64(i+1) << 32,
			Filesz: 64 << 20, Memsz: 64 << 20, Align: page,
		}
	}
	put(64+2*56, progs)

	// CFA = rsp + 8; the return address is at CFA - 8.
	cie := []byte{20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0}
	last := frame + int64(len(cie))
	if m.dense {
		last = frame + int64(len(cie)) + (m.frames-int64(len(cie))-32)/20*20
		b := make([]byte, 0, last-frame)
		b = append(b, cie...)
		for at := int64(len(b)); at < last-frame; at += 20 {
			b = fde(b, at, int32(-frame-at), 1)
		}
		put(frame, b)
	} else {
		put(frame, cie)
	}
	put(last, fde(nil, last-frame, int32(code-last-8), int32(size)))
	if m.hdr > 0 {
		n := (m.hdr - 12) / 8
		put(hdr, []byte{1, 0x1b, 0x03, 0x3b}, int32(frame-hdr-4), uint32(n))
		put(hdr+12+(n-1)*8, int32(code-hdr), int32(last-hdr))
	}

	names := []byte("\x00.eh_frame\x00.symtab\x00.strtab\x00")
	put(strtab, names)
	if m.names > 0 {
		put(strtab+64, []byte(strings.Repeat("n", 2*m.names)))
	}
	at := func(name string) uint32 { return uint32(strings.Index(string(names), name)) }
	put(shdrs, elf.Section64{},
		elf.Section64{
			Name: at(".eh_frame"), Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC), Addr: uint64(frame),
			Off: uint64(frame), Size: uint64(m.frames),
		},
		elf.Section64{
			Name: at(".symtab"), Type: uint32(elf.SHT_SYMTAB), Off: uint64(symtab), Size: uint64(m.symbols) * 24,
			Link: 3,
		},
		elf.Section64{
			Name: at(".strtab"), Type: uint32(elf.SHT_STRTAB), Off: uint64(strtab), Size: uint64(m.names)*2 + 64,
		},
		elf.Section64{Name: at(".strtab"), Type: uint32(elf.SHT_STRTAB), Off: uint64(strtab), Size: uint64(len(names))})
	if m.symbols > 0 {
		syms := make([]byte, 0, 24*m.symbols)
		for i := range m.symbols {
			syms = binary.LittleEndian.AppendUint32(syms, uint32(64+i%max(1, m.names)))
			syms = append(syms, 0x12, 0, 1, 0)
			syms = binary.LittleEndian.AppendUint64(syms, uint64(code)+uint64(i))
			syms = binary.LittleEndian.AppendUint64(syms, 1)
		}
		put(symtab, syms)
	}
	put(code, threads)
	return elfFile{f.Name(), code, size}
}

// fde appends a Frame Description Entry at an offset of .eh_frame.
func fde(b []byte, at int64, lo, size int32) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, 16)
	b = le.AppendUint32(b, uint32(at+4))
	b = le.AppendUint32(b, uint32(lo))
	b = le.AppendUint32(b, uint32(size))
	return append(b, 0, 0, 0, 0)
}

// threads is a function of two arguments, a stack pointer and a number of threads. The function starts the threads. All
// threads, and the caller, switch to the stack and wait for ever.
var threads = []byte{
	0x48, 0x89, 0xc4, // mov rsp, rax
	0x49, 0x89, 0xdc, // mov r12, rbx
	0x4d, 0x85, 0xe4, // next: test r12, r12
	0x74, 0x1f, // jz wait
	0xbf, 0x00, 0x0f, 0x05, 0x00, // mov edi, CLONE_VM|FS|FILES|SIGHAND|THREAD|SYSVSEM
	0x31, 0xf6, // xor esi, esi: on the same stack
	0x31, 0xd2, // xor edx, edx
	0x45, 0x31, 0xd2, // xor r10d, r10d
	0x45, 0x31, 0xc0, // xor r8d, r8d
	0xb8, 56, 0, 0, 0, // mov eax, SYS_clone
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x74, 0x05, // jz wait
	0x49, 0xff, 0xcc, // dec r12
	0xeb, 0xdc, // jmp next
	0xb8, 34, 0, 0, 0, // wait: mov eax, SYS_pause
	0x0f, 0x05, // syscall
	0xeb, 0xf7, // jmp wait
}

// maps maps a file's code and returns its address.
func (h *hostile) maps(f elfFile) uintptr {
	fd := got(os.Open(f.path))
	defer fd.Close()
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, h.next, uintptr(f.size), unix.PROT_READ|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_FIXED_NOREPLACE, fd.Fd(), uintptr(f.code))
	if errno != 0 {
		orEnd(errno)
	}
	h.next += uintptr(f.size) + page // without the gap the mappings would be one
	return at
}

func (h *hostile) mapOften(n int, f elfFile) {
	for range n {
		h.maps(f)
	}
}

// visit maps each file several times, and starts a thread whose stack goes through all mappings.
func (h *hostile) visit(times int, files ...elfFile) {
	var stack []uintptr
	for _, f := range files {
		for range times {
			stack = append(stack, h.maps(f)+uintptr(len(threads)))
		}
	}
	h.run(stack, 0)
}

// climb starts a thread whose stack has a return address at every address of a file's code.
func (h *hostile) climb(f elfFile) {
	at := h.maps(f)
	stack := make([]uintptr, f.size)
	for i := range stack {
		stack[i] = at + uintptr(i) + 1
	}
	h.run(stack, 0)
}

// recurse starts threads with deep stacks.
func (h *hostile) recurse(n, size int) {
	at := h.maps(h.write(image{frames: page}))
	stack := make([]uintptr, size/8)
	for i := range stack {
		stack[i] = at + uintptr(len(threads)) + uintptr(i%1000)
	}
	h.run(stack, n)
}

// run starts n threads, and one more, on a stack with the given return addresses.
func (h *hostile) run(stack []uintptr, n int) {
	mem := got(unix.Mmap(-1, 0, len(stack)*8+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))
	for i, a := range stack {
		binary.LittleEndian.PutUint64(mem[8*i:], uint64(a))
	}
	code := &struct{ at uintptr }{stack[0] &^ (page - 1)}
	call := *(*func(stack, threads uintptr))(unsafe.Pointer(&code))
	go call(uintptr(unsafe.Pointer(&mem[0])), uintptr(n))
	for end := time.Now().Add(testenv.Hang); ; {
		if time.Now().After(end) {
			orEnd(errors.New("the threads are not there: is the number of processes limited?"))
		}
		list := got(os.ReadDir("/proc/self/task"))
		waiting := 0
		for _, t := range list {
			if b, err := os.ReadFile("/proc/self/task/" + t.Name() + "/syscall"); err == nil &&
				strings.HasPrefix(string(b), "34 ") {
				waiting++
			}
		}
		if waiting > n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The limits for reading a hostile process.
const (
	hostileMemory = 224 << 20
	recordMemory  = 288 << 20        // Go's collector may come late while the process samples
	hostileTime   = 20 * time.Second // of a CPU
)

// TestHostileProcesses reads the hostile processes in every way.
func TestHostileProcesses(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	lookAtHostile(t, func(long bool) bool { return !long })
}

// TestHostileProcessesLong has the processes that take long.
func TestHostileProcessesLong(t *testing.T) {
	layer.Full(t)
	lookAtHostile(t, func(long bool) bool { return long })
}

func lookAtHostile(t *testing.T, wanted func(long bool) bool) {
	for _, p := range hostileProcesses {
		if !wanted(p.long) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			pid := strconv.Itoa(startHostile(t, p.name))
			for _, args := range [][]string{{"ps"}, {"stack", pid}, {"stack", "--native", pid},
				{"stack", "--native", "--json", pid}, {"stack", "--native", "--stop-all", pid}, {"doctor", pid}} {
				look(t, args)
			}
			// Names of 4 KB each are kept for every function of a recording: 691 MB of names.
			if p.name != "long-symbols" {
				look(t, []string{
					"record", "--native", "-d", "1s", "-o", filepath.Join(t.TempDir(), "out.clrsnap"), pid,
				})
			}
		})
	}
}

// few matches at most a warning and an error, of one sentence each; for record, also the sentences about the recording.
var few = map[bool]*regexp.Regexp{
	false: regexp.MustCompile(`^(clrsnap: warning: [^\n]{1,500}\n)?(clrsnap: [^\n]{1,500}\n)?$`),
	true:  regexp.MustCompile(`^(clrsnap: [^\n]{1,500}\n)+$`),
}

// worked is the CPU time of an ended command.
func worked(c *exec.Cmd) time.Duration {
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

// look runs the command, and checks its memory and time against the bounds. The command's output is not kept, because
// the memory of this process counts as the command's.
func look(t *testing.T, args []string) {
	var said strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	c := exec.CommandContext(ctx, "clrsnap", args...)
	c.Stderr = &said
	err := c.Run()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	took := worked(c).Round(time.Millisecond)
	memory, status := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10, c.ProcessState.ExitCode()
	t.Logf("%v: status %d, %d MB, %v: %s", args, status, memory>>20, took, said.String())
	most := int64(hostileMemory)
	if args[0] == "record" {
		most = recordMemory
	}
	if memory > most {
		t.Errorf("%v: %d MB", args, memory>>20)
	}
	if took > hostileTime {
		t.Errorf("%v: %v", args, took)
	}
	if status < 0 || status > 1 || !few[args[0] == "record"].MatchString(said.String()) {
		t.Errorf("%v: status %d, %.2000s", args, status, said.String())
	}
}
