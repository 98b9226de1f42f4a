package name

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/pe"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// file is a file in memory.
type file []byte

func (f file) ReadMemory(p []byte, at arch.Addr) error {
	if uint64(at) > uint64(len(f)) || copy(p, f[at:]) < len(p) {
		return &target.ReadError{Addr: at, Len: len(p)}
	}
	return nil
}

// metadataOf returns the metadata of a file of the kit.
func metadataOf(t *testing.T, name string) *ecma335.Metadata {
	t.Helper()
	b, err := os.ReadFile(testenv.InKit(name))
	if err != nil {
		layer.Lacking(t, "no real metadata to test with: "+err.Error()+": run scripts/get-dotnet.sh")
	}
	at, n, err := pe.Metadata(target.NewReader(file(b)), 0)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	md, err := ecma335.Parse(b[at:][:n])
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return md
}

// machines returns the compiler's record for debuggers of the source method of each state machine. The source method
// has an attribute with the name of the machine's type (II.22.10, II.23.3).
func machines(t *testing.T, md *ecma335.Metadata) map[string]uint32 {
	t.Helper()
	must := func(v uint32, err error) uint32 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	out := map[string]uint32{}
	for rid := uint32(1); rid <= md.Rows(ecma335.TableCustomAttribute); rid++ {
		parent := must(md.Cell(ecma335.TableCustomAttribute, rid, 0)) // coded, MethodDef is 0
		constructor := must(md.Cell(ecma335.TableCustomAttribute, rid, 1))
		if parent&31 != 0 {
			continue
		}
		var class string
		switch constructor & 7 {
		case 2:
			owner := must(md.MethodOwner(constructor >> 3))
			class, _ = md.TypeName(owner)
		case 3:
			if r, err := md.MemberRef(constructor >> 3); err == nil && r.Class.Table() == ecma335.TableTypeRef {
				class, _ = md.TypeRefName(r.Class.RID())
			}
		}
		if !strings.HasPrefix(class, "System.Runtime.CompilerServices.") ||
			!strings.HasSuffix(class, "StateMachineAttribute") {
			continue
		}
		value, err := md.Blob(must(md.Cell(ecma335.TableCustomAttribute, rid, 2)))
		if err != nil {
			t.Fatal(err)
		}
		if n := int(value[2]); n < 0x80 { // else the name is longer
			out[strings.ReplaceAll(string(value[3:3+n]), `\`, "")] = parent >> 5
		}
	}
	return out
}

// The source of a state machine is the method that the compiler names, or nothing.
func TestSource(t *testing.T) {
	lambdas, locals, all := 0, 0, 0
	for _, name := range []string{
		"net10/System.Private.CoreLib.dll", "net10/System.Text.Json.dll", "net10/System.Linq.dll",
		"csc/Microsoft.CodeAnalysis.dll", "csc/Microsoft.CodeAnalysis.CSharp.dll",
	} {
		md := metadataOf(t, filepath.FromSlash(name))
		of := machines(t, md)
		found, unknown := 0, 0
		for rid := uint32(1); rid <= md.Rows(ecma335.TableTypeDef); rid++ {
			typeName, err := md.TypeName(rid)
			if err != nil {
				t.Fatal(err)
			}
			method, ok := of[typeName]
			if !ok {
				continue
			}
			want, err := md.MethodDef(method)
			if err != nil {
				t.Fatal(err)
			}
			got, generic, ok := (&naming{a: &assembly{md: md}, typeRID: rid}).source()
			if !ok {
				unknown++
				continue
			}
			found++
			params, err := md.GenericParams(ecma335.MakeToken(ecma335.TableMethodDef, method))
			if got.Name != want.Name || string(got.Signature) != string(want.Signature) || err != nil ||
				generic != len(params) {
				t.Errorf("%s: %s comes from %+v with %d generic parameters, and in truth from %+v with %q, %v",
					name, typeName, got, generic, want, params, err)
			}
			switch {
			case strings.Contains(want.Name, ">b__"):
				lambdas++
			case strings.Contains(want.Name, ">g__"):
				locals++
			}
		}
		t.Logf("%s: of %d state machines %d have a source", name, found+unknown, found)
		all += found
	}
	if all < 200 || lambdas < 2 || locals < 5 {
		t.Errorf("%d state machines with a source, %d of lambdas and %d of local functions", all, lambdas, locals)
	}
}
