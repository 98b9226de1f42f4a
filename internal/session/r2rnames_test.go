package session

import (
	"bytes"
	"context"
	"debug/pe"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestReadyToRunNames: of all functions of all ReadyToRun images of an ASP.NET Core program, generic ones included,
// none has the method of another function. The tables of the image itself say where methods begin: the table of methods
// and the table of instantiations (readytorun.h). The code of a method that has not run yet has no method: nearest
// methods are never told.
func TestReadyToRunNames(t *testing.T) {
	layer.Proof(t)
	testenv.EachAspNet(t, testReadyToRunNames)
}

func testReadyToRunNames(t *testing.T, runtime string) {
	app := testenv.Start(t, "web", testenv.Options{Runtime: runtime})
	p, err := Open(context.Background(), app.PID, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	maps, err := p.from.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	var all r2rCounts
	files := map[string]*r2rFile{} // nil: IL only
	images := 0
	for i := range maps {
		m := &maps[i]
		if !strings.HasSuffix(m.Path, ".dll") {
			continue
		}
		f, known := files[m.Path]
		if !known {
			if f, err = readR2R(m.Path); err != nil {
				t.Fatal(m.Path, err)
			}
			files[m.Path] = f
		}
		base, ok := f.base(p, m)
		if !ok {
			continue // another mapping of the image, or a flat mapping of the file
		}
		files[m.Path] = nil
		images++
		c := f.check(t, p, base)
		name := filepath.Base(m.Path)
		if strings.Contains(name, "CoreLib") || strings.Contains(name, "Kestrel.Core") {
			t.Logf("%s: %+v", name, c)
			if c.named == 0 || c.instances == 0 && strings.Contains(name, "CoreLib") {
				t.Errorf("%s: nothing was proved", name)
			}
		}
		all.add(&c)
	}
	t.Logf("%d images: %+v", images, all)
	if all.functions < 20_000 || all.named < 1_000 || all.wrong != 0 {
		t.Errorf("%+v", all)
	}
}

// r2rCounts are functions of images.
type r2rCounts struct {
	functions, methods, instances, funclets int

	others  int // code that the runtime knows, and that is in no table: stubs, for example
	named   int // functions with the method that begins where the tables say
	notRun  int // functions of methods that the runtime does not know
	nearest int // of these: functions behind a method that the runtime knows
	wrong   int
}

func (c *r2rCounts) add(o *r2rCounts) {
	c.functions += o.functions
	c.methods += o.methods
	c.instances += o.instances
	c.funclets += o.funclets
	c.others += o.others
	c.named += o.named
	c.notRun += o.notRun
	c.nearest += o.nearest
	c.wrong += o.wrong
}

// r2rFile is the content of a ReadyToRun image.
type r2rFile struct {
	b        []byte // as mapped, by RVA
	sections map[uint32][]byte
	at       map[uint32]uint32 // RVAs of the sections
	rids     map[int]uint32    // methods by function; 0: an instantiation
	parts    []*pe.Section
}

// base is where the runtime has loaded the image, by a mapping of a part of the file; false: not by this mapping.
func (r *r2rFile) base(p *Process, m *target.Mapping) (arch.Addr, bool) {
	if r == nil {
		return 0, false
	}
	const page = 4096
	for _, s := range r.parts {
		from := uint64(s.Offset) &^ (page - 1)
		if m.Offset < from || m.Offset >= uint64(s.Offset)+uint64(s.Size) {
			continue
		}
		base := m.Start - arch.Addr(m.Offset) + arch.Addr(s.Offset) - arch.Addr(s.VirtualAddress)
		code, err := p.Runtime.Code.Lookup(base + arch.Addr(binary.LittleEndian.Uint32(r.sections[secFunctions])))
		if err != nil || code.Kind != codemap.None {
			return base, true
		}
	}
	return 0, false
}

// Types of sections (readytorun.h).
const (
	secFunctions = 102
	secMethods   = 103
	secInstances = 109
)

// readR2R reads an image; nil: there is no ReadyToRun code of its own.
func readR2R(path string) (*r2rFile, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	const lfanew, amd64, linux = 0x3c, 0x8664, 0x7b79 // ReadyToRun images for Linux have another machine
	if at := int(binary.LittleEndian.Uint32(raw[lfanew:])) + 4; binary.LittleEndian.Uint16(raw[at:]) == amd64^linux {
		binary.LittleEndian.PutUint16(raw[at:], amd64)
	}
	f, err := pe.NewFile(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	head, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		return nil, nil
	}
	r := &r2rFile{b: make([]byte, head.SizeOfImage), sections: map[uint32][]byte{}, at: map[uint32]uint32{},
		rids: map[int]uint32{}}
	r.parts = f.Sections
	for _, s := range f.Sections {
		copy(r.b[s.VirtualAddress:], raw[s.Offset:s.Offset+min(s.Size, s.VirtualSize)])
	}
	const clrHeader, nativeHeader = 14, 64
	cor := head.DataDirectory[clrHeader].VirtualAddress
	if cor == 0 {
		return nil, nil
	}
	at := r.u32(cor + nativeHeader)
	if at == 0 || string(r.b[at:at+4]) != "RTR\x00" {
		return nil, nil
	}
	for i := range r.u32(at + 12) {
		s := at + 16 + 12*i
		kind, rva, size := r.u32(s), r.u32(s+4), r.u32(s+8)
		r.sections[kind], r.at[kind] = r.b[rva:rva+size], rva
	}
	if r.sections[secFunctions] == nil {
		return nil, nil // part of a composite image
	}
	return r, r.readMethods()
}

func (r *r2rFile) u32(rva uint32) uint32 { return binary.LittleEndian.Uint32(r.b[rva:]) }

var errR2R = errors.New("the tables of the image are not understood")

// readMethods finds the function of each method.
func (r *r2rFile) readMethods() error {
	if b := r.sections[secMethods]; len(b) > 0 {
		r.eachMethod(b, func(rid, id uint32) { r.rids[int(id)] = rid })
	}
	b := r.sections[secInstances]
	if len(b) == 0 {
		return nil
	}
	shift, width := b[0]>>2, uint32(1)<<(b[0]&3)
	bucket := func(i uint32) uint32 {
		at := 1 + i*width
		v := uint32(0)
		for k := range width {
			v |= uint32(b[at+k]) << (8 * k)
		}
		return 1 + v
	}
	for i := range uint32(1) << shift {
		for at, end := bucket(i), bucket(i+1); at < end; {
			at++ // a byte of the hash
			delta, n := nativeSigned(b[at:])
			entry := uint32(int32(at) + delta)
			at += uint32(n)
			s := sigReader{b: b[entry:]}
			if s.method(); s.bad {
				return errR2R
			}
			id, _ := nativeUnsigned(s.b)
			r.rids[int(functionOf(id))] = 0
		}
	}
	return nil
}

// eachMethod visits a table by the numbers of methods: a sparse array in blocks of 16 (nativeformatreader.h). A block
// is a tree with a level for each bit of the index.
func (r *r2rFile) eachMethod(b []byte, visit func(rid, function uint32)) {
	head, n := nativeUnsigned(b)
	base, width := uint32(n), uint32(1)<<(head&3)
	for index := range head >> 2 {
		at := base
		for k := range width {
			at += uint32(b[base+index/16*width+k]) << (8 * k)
		}
		there := true
		for bit := uint32(8); bit > 0; bit /= 2 {
			node, n := nativeUnsigned(b[at:])
			if node&3 == 0 { // the only value below
				there = node>>2 == index%16
				at += uint32(n)
				break
			}
			low, high := node&1 != 0, node&2 != 0
			if there = index&bit == 0 && low || index&bit != 0 && high; !there {
				break
			}
			if index&bit == 0 {
				at += uint32(n)
			} else {
				at += node >> 2
			}
		}
		if there {
			id, _ := nativeUnsigned(b[at:])
			visit(index+1, functionOf(id))
		}
	}
}

// functionOf is the index of a function: the low bits say whether fixups follow.
func functionOf(id uint32) uint32 {
	if id&1 != 0 {
		return id >> 2
	}
	return id >> 1
}

func nativeUnsigned(b []byte) (uint32, int) {
	n := 1
	for n < 5 && b[0]&(1<<(n-1)) != 0 {
		n++
	}
	if n == 5 {
		return binary.LittleEndian.Uint32(b[1:]), 5
	}
	v := uint32(0)
	for i := range n {
		v |= uint32(b[i]) << (8 * i)
	}
	return v >> n, n
}

func nativeSigned(b []byte) (int32, int) {
	v, n := nativeUnsigned(b)
	if n == 5 {
		return int32(v), n
	}
	unused := 32 - 7*n
	return int32(v<<unused) >> unused, n
}

// sigReader skips signatures (zapsig.cpp, ECMA-335 II.23.2).
type sigReader struct {
	b   []byte
	bad bool
}

func (s *sigReader) byte() byte {
	if len(s.b) == 0 {
		s.bad = true
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return v
}

func (s *sigReader) data() (v uint32) {
	switch b := s.byte(); {
	case b&0x80 == 0:
		v = uint32(b)
	case b&0x40 == 0:
		v = uint32(b&0x3f)<<8 | uint32(s.byte())
	default:
		v = uint32(b&0x1f)<<24 | uint32(s.byte())<<16 | uint32(s.byte())<<8 | uint32(s.byte())
	}
	return v
}

// method skips the name of a method.
func (s *sigReader) method() {
	const instantiation, constrained, owner, context = 4, 0x20, 0x40, 0x80
	flags := s.data()
	if flags&context != 0 {
		s.data()
	}
	if flags&owner != 0 {
		s.typ()
	}
	s.data()
	if flags&instantiation != 0 {
		for range s.data() {
			s.typ()
		}
	}
	if flags&constrained != 0 {
		s.typ()
	}
}

// typ skips a type.
func (s *sigReader) typ() {
	if s.bad {
		return
	}
	switch e := s.byte(); e {
	case 0x0f, 0x10, 0x1d, 0x45: // pointer, reference, array, pinned
		s.typ()
	case 0x11, 0x12, 0x13, 0x1e, 0x3b: // token, variable
		s.data()
	case 0x14:
		s.typ()
		s.data()
		for range s.data() {
			s.data()
		}
		for range s.data() {
			s.data()
		}
	case 0x15:
		s.typ()
		for range s.data() {
			s.typ()
		}
	case 0x1b:
		s.data()
		for range s.data() + 1 {
			s.typ()
		}
	case 0x3d: // a native value type
		s.typ()
	case 0x3e: // shared code
	case 0x3f: // of another module
		s.data()
		s.typ()
	default:
		s.bad = e > 0x1c
	}
}

// check looks each function up in the process.
func (r *r2rFile) check(t *testing.T, p *Process, base arch.Addr) (c r2rCounts) {
	t.Helper()
	const size = 12 // begin, end, unwind information
	functions := r.sections[secFunctions]
	begin := arch.Addr(0) // of the method
	known := false
	for i := range len(functions) / size {
		rva := binary.LittleEndian.Uint32(functions[size*i:])
		if rva == 0xffff_ffff {
			break // the end of the table
		}
		c.functions++
		rid, begins := r.rids[i]
		switch {
		case !begins:
			c.funclets++
		case rid == 0:
			c.instances++
		default:
			c.methods++
		}
		if begins {
			begin = base + arch.Addr(rva)
		}
		code, err := p.Runtime.Code.Lookup(base + arch.Addr(rva))
		switch {
		case err != nil:
			if c.notRun++; known {
				c.nearest++
			}
		case !begins && !code.Funclet && code.MethodDesc != 0 && code.MethodStart == base+arch.Addr(rva):
			c.others++
			begin, known = code.MethodStart, true
		case code.Kind != codemap.ReadyToRun || code.MethodDesc == 0 || code.MethodStart != begin ||
			code.Funclet == begins:
			if c.wrong++; c.wrong < 5 {
				t.Errorf("function %d at %#x of method %d: %+v", i, rva, rid, code)
			}
		default:
			c.named++
			known = true
			if m, err := p.Runtime.Methods.Read(code.MethodDesc); rid != 0 && (err != nil || m.RID != rid) {
				t.Errorf("function %d at %#x of method %d: %+v, %v", i, rva, rid, m, err)
			}
		}
	}
	return c
}
