package pdb

import (
	"testing"

	"clrsnap/internal/ecma335"
	"clrsnap/internal/pe"
	"clrsnap/internal/testenv"
)

// touch asks for everything about up to limit methods and documents, and checks that all answers
// about a method's lines agree.
func touch(t testing.TB, f *File, limit uint32) {
	f.SourceLink()
	for i := range min(f.Documents(), int32(limit)) {
		if d, err := f.Document(i + 1); err == nil {
			d.Is(nil)
		}
		if i < 4 {
			f.Source(i + 1)
		}
	}
	for m := range min(f.Methods(), limit) {
		f.Kickoff(m + 1)
		f.MoveNext(m + 1)
		f.Async(m + 1)
		points, err := f.Lines(m + 1)
		for i, p := range points[:min(len(points), 64)] {
			if p.Document < 1 || p.Document > f.Documents() || i > 0 && p.IL <= points[i-1].IL {
				t.Fatalf("method %d: point %d is %+v of %d documents", m+1, i, p, f.Documents())
			}
			at, exact, ok := f.LineIn(m+1, p.IL, p.IL+1)
			if ok && (at.Hidden || at.IL > p.IL || exact != (at == p || p.Await && at == points[i-1])) {
				t.Fatalf("method %d: IL %#x is at %+v, exact %v", m+1, p.IL, at, exact)
			}
		}
		if _, _, ok := f.LineIn(m+1, 1<<31, 1<<31+1); ok && err != nil {
			t.Fatalf("method %d has a line and the error %v", m+1, err)
		}
	}
	f.check([]pe.Checksum{{Algorithm: "SHA256"}})
}

// Bounds of the allocations for reading a PDB, and for asking for 64 items of every kind and for 4
// sources. A name may have 4,096 bytes by reference, 64 methods may share the same points, which take
// more than ten times their size while the slice grows, and a byte of a source may unpack to 1,032.
const (
	allocatesPerByte = 64*60 + 4*1100
	allocatesBesides = 2 << 20
)

// everything is a PDB with everything that the package reads.
func everything() *builder {
	b := one(1, "00  02 00 05 0a 03  03 00 00")
	b.row(ecma335.TableStateMachineMethod, 1, 2)
	b.custom(tagMethod, 1, kindAsync, unhex("00000000 10000000 20000000 01"))
	b.custom(tagDocument, 1, kindSource, unhex("02000000 010200fdff 6869"))
	b.custom(tagModule, 1, kindSourceLink, []byte(sourceLinkJSON))
	return b
}

// FuzzStreams is FuzzParse behind sound headers, so that every mutation reaches the streams.
func FuzzStreams(f *testing.F) {
	for _, b := range []*builder{everything(), one(0, "00 02  01 00 05 02 00  00 03  02 00 05 02 00")} {
		pdb, tables := b.streams()
		f.Add(pdb, tables, b.blobs, b.guids)
	}
	f.Fuzz(func(t *testing.T, pdb, tables, blobs, guids []byte) {
		b := container([]string{"#Pdb", "#~", "#Blob", "#GUID"}, [][]byte{pdb, tables, blobs, guids})
		testenv.Allocates(t, len(b), allocatesPerByte, allocatesBesides, func() {
			if file, err := Parse(b); err == nil {
				touch(t, file, 64)
			}
		})
	})
}

// FuzzParse reads hostile PDBs.
func FuzzParse(f *testing.F) {
	f.Add(one(0, "00 02  01 00 05 02 00  00 03  02 00 05 02 00").bytes())
	f.Add(everything().bytes())
	_, real := fixturePDB(f)
	f.Add(real)
	f.Fuzz(func(t *testing.T, b []byte) {
		testenv.Allocates(t, len(b), allocatesPerByte, allocatesBesides, func() {
			if file, err := Parse(b); err == nil {
				touch(t, file, 64)
			}
		})
	})
}

// FuzzLines reads hostile sequence points behind sound headers.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		"00 02  01 00 05 02 00  00 03  02 00 05 02 00  00 01 00 02  02 00 00", "00  00 03 7b 0a 09",
		"00  df ff ff ff 00 01 df ff ff ff c0 00 ff fe", "00  00 00 05 0a 03  04 00 02 04 02  06 02 7b 7d 0c",
	} {
		f.Add(uint16(0), unhex(seed))
		f.Add(uint16(1), unhex(seed))
	}
	f.Fuzz(func(t *testing.T, document uint16, points []byte) {
		if len(points) > 1<<14 {
			return
		}
		b := one(1, "")
		b.Rows[0x31], b.Counts[0x31] = b.Rows[0x31][:2], 1
		b.methods = 1
		b.method(document, points)
		file := b.parse(t)
		// A point takes three bytes or more, and a slice that grows is copied.
		testenv.Allocates(t, len(points), 100, 1<<16, func() { touch(t, file, 64) })
	})
}

// FuzzSourceLink maps hostile names by hostile maps.
func FuzzSourceLink(f *testing.F) {
	f.Add([]byte(sourceLinkJSON), "/src/a.cs")
	f.Add([]byte(`{"documents": {"C:\\*": "https://example.org/*?x", "a": "http://b"}}`), `c:\ü\*`)
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		testenv.Allocates(t, len(text)+len(name), 200, 1<<16, func() {
			l, err := ParseSourceLink(text)
			if err != nil {
				return
			}
			if url, ok := l.URL(name); ok && !harmless(url) {
				t.Fatalf("%q", url)
			}
		})
	})
}
