package testenv

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// codeLoadRecord is a record in the runtime's form, with its code.
func codeLoadRecord(r CodeRecord) []byte {
	b := make([]byte, codeLoadSize, 256)
	binary.LittleEndian.PutUint64(b[8:], r.Time)
	binary.LittleEndian.PutUint32(b[20:], uint32(r.TID))
	binary.LittleEndian.PutUint64(b[24:], r.Start)
	binary.LittleEndian.PutUint64(b[32:], r.Start)
	binary.LittleEndian.PutUint64(b[40:], r.End-r.Start)
	b = append(append(b, r.Name...), 0)
	b = append(b, make([]byte, r.End-r.Start)...)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	return b
}

func TestJitDumpGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jit.dump")
	header := make([]byte, jitDumpHeaderSize)
	binary.LittleEndian.PutUint32(header, jitDumpMagic)
	binary.LittleEndian.PutUint32(header[8:], jitDumpHeaderSize)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(b []byte) {
		t.Helper()
		if _, err := file.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	write(header)
	d, err := OpenJitDump(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	var want []CodeRecord
	for i := range 200 {
		r := CodeRecord{Time: uint64(i + 1), TID: i, Start: uint64(i) << 20, End: uint64(i)<<20 + 100,
			Name: "void [a] T::M()[QuickJitted]"}
		want = append(want, r)
		b := codeLoadRecord(r)
		if i%3 != 0 {
			write(b)
			continue
		}
		// The reader comes while half of a record is there.
		write(b[:len(b)/2])
		var got []CodeRecord
		if err := d.Next(func(r CodeRecord) { got = append(got, r) }); err != nil {
			t.Fatal(err)
		}
		if n := len(want) - 1; len(got) > n {
			t.Fatalf("got %d of %d complete records", len(got), n)
		}
		for j, r := range got {
			if w := want[len(want)-1-len(got)+j]; r != w {
				t.Fatalf("got %+v, want %+v", r, w)
			}
		}
		write(b[len(b)/2:])
	}
	if err := d.Next(func(CodeRecord) {}); err != nil || d.Records != 200 {
		t.Errorf("read %d of 200 records: %v", d.Records, err)
	}
}

func TestJitDumpBad(t *testing.T) {
	for name, b := range map[string][]byte{"empty": nil, "no magic": make([]byte, 100)} {
		path := filepath.Join(t.TempDir(), "jit.dump")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := OpenJitDump(path); err == nil {
			d.Close()
			t.Errorf("%s: no error", name)
		}
	}
	d := &JitDump{rest: make([]byte, codeLoadSize)} // a record of no bytes
	if err := d.parse(func(CodeRecord) { t.Error("a record came of it") }); err == nil {
		t.Error("a record of no bytes: no error")
	}
}

// TestJitDump requires the runtime to write both jitted and ReadyToRun code.
func TestJitDump(t *testing.T) {
	a := Start(t, "scenarios", Options{JitDump: true, Args: []string{"--only", "lambda"}})
	d := a.JitDump()
	kinds := map[string]int{}
	last := uint64(0)
	err := d.Next(func(r CodeRecord) {
		if r.Time < last || r.TID == 0 || r.End <= r.Start {
			t.Errorf("record %+v follows one of time %d", r, last)
		}
		last = r.Time
		for _, tier := range []string{"[PreJIT]", "[QuickJitted]"} {
			if n := len(r.Name) - len(tier); n > 0 && r.Name[n:] == tier {
				kinds[tier]++
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if kinds["[PreJIT]"] < 50 || kinds["[QuickJitted]"] < 10 {
		t.Errorf("methods by tier: %v", kinds)
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("result %q, exit code %d", result, code)
	}
}
