package amd64

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"os"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// kitFile finds a file of the .NET kit.
func kitFile(t testing.TB, name string) string {
	t.Helper()
	p := testenv.InKit(name)
	if _, err := os.Stat(p); err != nil {
		layer.Lacking(t, "no real code to test with: "+err.Error()+": run scripts/get-dotnet.sh")
	}
	return p
}

// r2rImage is a ReadyToRun image as it lies in a file: sections by address.
type r2rImage struct {
	image
	path  string
	text  []pe.SectionHeader
	funcs []Function
}

const r2rBase = arch.Addr(0x7f00_0000_0000)

// loadR2R reads a ReadyToRun image. The layouts come from
// src/coreclr/inc/readytorun.h (READYTORUN_HEADER, READYTORUN_SECTION) and
// corhdr.h (IMAGE_COR20_HEADER).
func loadR2R(t testing.TB, path string) *r2rImage {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Images for Linux carry the machine xored with 0x7b79 (pedecoder.h).
	nt := binary.LittleEndian.Uint32(raw[0x3c:])
	binary.LittleEndian.PutUint16(raw[nt+4:], pe.IMAGE_FILE_MACHINE_AMD64)
	f, err := pe.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	im := &r2rImage{path: path}
	for _, s := range f.Sections {
		data := raw[s.Offset : s.Offset+min(s.Size, s.VirtualSize)]
		im.image = append(im.image, struct {
			Base arch.Addr
			Data []byte
		}{r2rBase + arch.Addr(s.VirtualAddress), data})
		if s.Characteristics&pe.IMAGE_SCN_MEM_EXECUTE != 0 {
			im.text = append(im.text, s.SectionHeader)
		}
	}
	read := func(rva uint32, n int) []byte {
		p := make([]byte, n)
		if err := im.ReadMemory(p, r2rBase+arch.Addr(rva)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	u32 := binary.LittleEndian.Uint32
	const comDescriptor, managedNativeHeader = 14, 64
	cor := f.OptionalHeader.(*pe.OptionalHeader64).DataDirectory[comDescriptor].VirtualAddress
	hdr := u32(read(cor+managedNativeHeader, 4))
	h := read(hdr, 16)
	if string(h[:4]) != "RTR\x00" {
		t.Fatalf("%s is not a ReadyToRun image", path)
	}
	const runtimeFunctions = 102
	sections := read(hdr+16, 12*int(u32(h[12:])))
	for ; len(sections) > 0; sections = sections[12:] {
		if u32(sections) != runtimeFunctions {
			continue
		}
		for b := read(u32(sections[4:]), int(u32(sections[8:]))); len(b) >= entrySize; b = b[entrySize:] {
			at := func(i int) arch.Addr { return r2rBase + arch.Addr(u32(b[i:])) }
			if u32(b) == ^uint32(0) {
				break // the table ends in a sentinel
			}
			im.funcs = append(im.funcs,
				Function{Base: r2rBase, Start: at(0), End: at(4), UnwindInfo: at(8), MethodStart: at(0)})
		}
	}
	return im
}
