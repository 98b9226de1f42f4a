package testenv

import (
	"bytes"
	"os"
	"testing"
)

func TestDump(t *testing.T) {
	EachOf(t, Versions(), func(t *testing.T, runtime string) {
		for _, kind := range DumpKinds {
			if kind.Runs(runtime) {
				t.Run(string(kind), func(t *testing.T) { testDump(t, runtime, kind) })
			}
		}
	})
}

func testDump(t *testing.T, runtime string, kind DumpKind) {
	app := Start(t, "idle",
		DumpOptions(t, kind, Options{Runtime: runtime, Args: []string{"--threads", "2", "--pool", "1"}}))
	file := Dump(t, app, kind)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const elfCore = 4 // ET_CORE
	var header [18]byte
	if _, err := f.ReadAt(header[:], 0); err != nil || !bytes.HasPrefix(header[:], []byte("\x7fELF")) ||
		header[16] != elfCore {
		t.Fatalf("%s is no core dump: % x, %v", file, header, err)
	}
	if !kind.Kills() {
		if result, code := app.Stop(); result != "OK" || code != 0 {
			t.Errorf("after the dump the program ended with %q, code %d", result, code)
		}
	}
}
