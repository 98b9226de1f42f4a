package testenv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A CodeRecord is the runtime's note about a piece of code: after the code was compiled or, for ReadyToRun code, when
// the runtime begins to use the code.
type CodeRecord struct {
	Time       uint64 // in nanoseconds of CLOCK_MONOTONIC
	TID        int    // of the compiling thread, in the target's PID namespace
	Start, End uint64 // End is the first address after the code
	Name       string // as in a perf map
}

// A JitDump reads the perf map in the binary form for perf inject. Unlike the text form, the binary form has ReadyToRun
// code too, and the time of each entry.
//
// The runtime writes each record at once, without a buffer and under a lock, so records are in the order of their times
// (PAL_PerfJitDump_LogMethod in src/coreclr/pal/src/misc/perfjitdump.cpp). Nothing is written about unloaded code.
type JitDump struct {
	file    *os.File
	at      int64 // the position up to which the file was read
	rest    []byte
	Records int
}

// jitDumpEnv makes the runtime write a jitdump and no text. .NET 10 must not write whole blocks of stubs: the runtime
// would read the stubs' code before all of the block is mapped, and after that error never write again. Granularity 4
// leaves all stubs out, but only from 10.0.10 on: the jitdumps of older builds of .NET 10 are nearly empty. With
// granularity 2 older builds would write each stub separately, which can deadlock (src/coreclr/vm/perfmap.cpp). .NET 8
// and 9 do not have the setting.
func jitDumpEnv() []string {
	const jitDumpOnly, noStubs = "2", "4"
	return []string{
		"DOTNET_PerfMapEnabled=" + jitDumpOnly, "DOTNET_PerfMapStubGranularity=" + noStubs,
		"DOTNET_PerfMapShowOptimizationTiers=1", "DOTNET_PerfMapJitDumpPath=" + os.TempDir(),
	}
}

// JitDump opens the program's jitdump. The program must have been started with
// Options.JitDump.
func (a *App) JitDump() *JitDump {
	a.tb.Helper()
	d, err := OpenJitDump(filepath.Join(os.TempDir(), fmt.Sprintf("jit-%d.dump", a.PID)))
	if err != nil {
		a.tb.Fatalf("jitdump of %s: %v", a, err)
	}
	a.tb.Cleanup(func() { d.Close() })
	return d
}

// OpenJitDump opens a jitdump that a program may still be writing.
func OpenJitDump(path string) (*JitDump, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	d := &JitDump{file: f}
	if err := d.header(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// Close closes the file without removing the file.
func (d *JitDump) Close() error { return d.file.Close() }

const (
	jitDumpMagic      = 0x4a695444
	jitDumpHeaderSize = 40
	codeLoad          = 0  // JIT_CODE_LOAD, the only kind of record that the runtime writes
	codeLoadSize      = 56 // of its fixed part
	maxRecordSize     = 64 << 20
)

func (d *JitDump) header() error {
	var h [jitDumpHeaderSize]byte
	if _, err := d.file.ReadAt(h[:], 0); err != nil {
		return err
	}
	magic, size := binary.LittleEndian.Uint32(h[:]), binary.LittleEndian.Uint32(h[8:])
	if magic != jitDumpMagic || size < jitDumpHeaderSize {
		return fmt.Errorf("not a jitdump: magic %#x, header of %d bytes", magic, size)
	} else {
		d.at = int64(size)
	}
	return nil
}

// Next calls add for every record since the last call. An unfinished last record is left for the next call. The bytes
// read are freed in the file system, where possible, so that long runs need little space.
func (d *JitDump) Next(add func(CodeRecord)) error {
	chunk := make([]byte, 1<<20)
	for {
		n, err := d.file.ReadAt(chunk, d.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		d.rest = append(d.rest, chunk[:n]...)
		d.at += int64(n)
		if err := d.parse(add); err != nil {
			return err
		}
		if n < len(chunk) {
			break
		}
	}
	const page = 4096
	if done := (d.at - int64(len(d.rest))) / page * page; done > page {
		// The header stays. Not every file system can punch holes.
		_ = unix.Fallocate(int(d.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, page, done-page)
	}
	return nil
}

func (d *JitDump) parse(add func(CodeRecord)) error {
	b := d.rest
	for len(b) >= codeLoadSize {
		id, size := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		if size < codeLoadSize || size > maxRecordSize {
			return fmt.Errorf("jitdump: record %d has %d bytes", d.Records, size)
		}
		if len(b) < int(size) {
			break
		}
		if id == codeLoad {
			r, err := parseCodeLoad(b[:size])
			if err != nil {
				return fmt.Errorf("jitdump: record %d: %w", d.Records, err)
			}
			add(r)
		}
		d.Records++
		b = b[size:]
	}
	d.rest = append(d.rest[:0], b...)
	return nil
}

func parseCodeLoad(b []byte) (CodeRecord, error) {
	name, _, ok := bytes.Cut(b[codeLoadSize:], []byte{0})
	start, size := binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])
	if !ok || start+size < start {
		return CodeRecord{}, fmt.Errorf("code of %d bytes at %#x, name %q", size, start, name)
	}
	return CodeRecord{
		Time: binary.LittleEndian.Uint64(b[8:]), TID: int(binary.LittleEndian.Uint32(b[20:])),
		Start: start, End: start + size, Name: string(name),
	}, nil
}
