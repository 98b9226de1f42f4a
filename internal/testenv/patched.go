package testenv

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// There is no compiler for native AOT programs here. So some troubles are copies of programs with changed machine
// code: the runtime, the locks and the threads are the real ones.

// patch replaces instructions of a function.
type patch struct {
	function string
	at       int    // bytes from the start of the function
	was      []byte // the beginning of the old instructions
	becomes  []any  // bytes, and the names of functions to call, or behind relative of variables
}

// relative is the beginning of an instruction with the distance to a variable.
type relative []byte

// The static fields of the class Hello.Program lie behind a register, in the order of the source.
const (
	theLock = 0x08
	pulse   = 0x10
	up      = 0x38 // a CountdownEvent: zero as soon as all threads have said where they wait
)

var (
	field       = []byte{0x48, 0x8b, 0x7b}                                   // mov rdi,[rbx+…]
	forEver     = []byte{0xbe, 0xff, 0xff, 0xff, 0xff}                       // mov esi,-1
	noToken     = []byte{0x33, 0xd2}                                         // xor edx,edx
	toSemaphore = []byte{0x48, 0x8b, 0x78, 0x28, 0x39, 0x3f}                 // mov rdi,[rax+28h]; cmp [rdi],edi
	toNull      = []byte{0x33, 0xff, 0x66, 0x90, 0x39, 0x3f}                 // xor edi,edi; xchg ax,ax; cmp [rdi],edi
	enter       = "S_P_CoreLib_System_Threading_Monitor__Enter"              // (object)
	wait        = "System_Threading_System_Threading_CountdownEvent__Wait_4" // (int, CancellationToken)
)

// AheadOfTimeDeadlocked is the program "hello" (see AheadOfTimeNewest) with a deadlock: the thread "holder" waits for
// the lock that the thread "waiter" has, and the other way round. The thread "holder" asks after all threads have said
// where they wait. What "hello" says of these two threads is of the program as it was.
func AheadOfTimeDeadlocked(tb testing.TB) (file string) {
	tb.Helper()
	return patchedAheadOfTime(tb, "hello",
		patch{"hello_Hello_Program__HoldTheLock", 0x65, append(bytes.Clone(field), 0x20, 0x40, 0x38, 0x3f, 0xbe),
			[]any{field, []byte{up}, forEver, noToken, wait, field, []byte{pulse}, enter}},
		patch{"hello_Hello_Program__WaitForPulse", 0x57, append(bytes.Clone(field), pulse, 0xbe),
			[]any{field, []byte{theLock}, forEver, enter}})
}

// AheadOfTimeReaders is the web service "slim" (see AheadOfTimeNewest) with a lock: /wait/N first enters a
// ReaderWriterLockSlim of the framework, to read for an even N, to write for an odd N.
func AheadOfTimeReaders(tb testing.TB) (file string) {
	tb.Helper()
	const (
		watchers = "__GCSTATICSSystem_IO_FileSystem_Watcher_System_IO_FileSystemWatcher_INotify" // a variable
		read     = "S_P_CoreLib_System_Threading_ReaderWriterLockSlim__TryEnterReadLockCore"
		write    = "S_P_CoreLib_System_Threading_ReaderWriterLockSlim__TryEnterWriteLockCore"
	)
	return patchedAheadOfTime(tb, "slim", patch{
		"slim_Slim_Program__BlockFor", 0x21, []byte{0x8b, 0xdf, 0x8b, 0xfb, 0xe8},
		[]any{
			[]byte{0x8b, 0xdf},                   // mov ebx,edi
			relative{0x48, 0x8b, 0x05}, watchers, // mov rax,[rip+…]
			[]byte{0x48, 0x8b, 0x40, 0x10},    // mov rax,[rax+10h], the only INotify
			[]byte{0x48, 0x8b, 0x78, 0x28},    // mov rdi,[rax+28h], the lock
			forEver,                           // for either method
			[]byte{0xf6, 0xc3, 0x01, 0x75, 7}, // test bl,1; jne
			read,
			[]byte{0xeb, 5}, // jmp
			write,
			[]byte{0x8b, 0xfb}, // mov edi,ebx
			"S_P_CoreLib_System_Threading_Thread__Sleep",
		}})
}

// AheadOfTimeFailed is the program "hello" with an async method that fails: Inner calls a method of null. Outer awaits
// Inner, and nobody awaits Outer.
func AheadOfTimeFailed(tb testing.TB) (file string) {
	tb.Helper()
	return patchedAheadOfTime(tb, "hello",
		patch{"hello_Hello_Program__Inner_d__21__MoveNext", 0x75, toSemaphore, []any{toNull}})
}

// patchedAheadOfTime writes a copy of a program of AheadOfTimeNewest, with other instructions.
func patchedAheadOfTime(tb testing.TB, name string, patches ...patch) (file string) {
	tb.Helper()
	program := AheadOfTimeNewest(tb, name)
	code, err := os.ReadFile(program)
	if err != nil {
		tb.Fatal(err)
	}
	symbols := symbolsOf(tb, program+".dbg")
	image, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range patches {
		at := symbols[p.function] + uint64(p.at)
		text := p.text(symbols, at)
		old := code[offsetOf(tb, image, at):]
		if !bytes.HasPrefix(old, p.was) {
			tb.Fatalf("%s has the instructions % x", p.function, old[:len(text)])
		}
		copy(old, text)
	}
	file = filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(file, code, 0o755); err != nil {
		tb.Fatal(err)
	}
	return file
}

// text returns the new instructions at an address.
func (p *patch) text(symbols map[string]uint64, at uint64) (out []byte) {
	call := relative{0xe8}
	for _, part := range p.becomes {
		switch part := part.(type) {
		case []byte:
			out = append(out, part...)
		case relative:
			call = part
		case string:
			out = append(out, call...)
			distance := int64(symbols[part]) - int64(at) - int64(len(out)) - 4
			out = binary.LittleEndian.AppendUint32(out, uint32(distance))
			call = relative{0xe8}
		}
	}
	return out
}

// symbolsOf returns the addresses of the symbols in a file.
func symbolsOf(tb testing.TB, file string) map[string]uint64 {
	tb.Helper()
	_, symbols := Symbols(tb, file)
	out := map[string]uint64{}
	for _, s := range symbols {
		out[s.Name] = s.Value
	}
	return out
}

// Symbols returns an ELF file, open until the test ends, and the file's symbols.
func Symbols(tb testing.TB, file string) (*elf.File, []elf.Symbol) {
	tb.Helper()
	f, err := elf.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	symbols, err := f.Symbols()
	if err != nil {
		tb.Fatal(err)
	}
	return f, symbols
}

// offsetOf returns the place of an address in a file.
func offsetOf(tb testing.TB, image *elf.File, at uint64) uint64 {
	tb.Helper()
	for _, p := range image.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= at && at < p.Vaddr+p.Filesz {
			return at - p.Vaddr + p.Off
		}
	}
	tb.Fatalf("no code lies at %#x", at)
	return 0
}
