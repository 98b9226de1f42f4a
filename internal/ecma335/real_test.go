package ecma335

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/testenv/layer"
)

// TestAgainstReflection compares names, owners, parameters and signatures with
// the runtime's own reflection on the same files.
func TestAgainstReflection(t *testing.T) {
	layer.Live(t)
	dir := kit(t)
	work := t.TempDir()
	dll := filepath.Join(work, "reflect.dll")
	csc := exec.Command(filepath.Join(dir, "bin", "csc"), "net10",
		"-unsafe+", "-o+", "-out:"+dll, "--rtc", "testdata/reflect.cs")
	if out, err := csc.CombinedOutput(); err != nil {
		t.Fatalf("csc: %v\n%s", err, out)
	}
	net10 := filepath.Join(dir, "net10")
	run := exec.Command(filepath.Join(net10, "dotnet"), dll, "self")
	for _, n := range []string{
		"System.Private.CoreLib", "System.Linq.Expressions", "Microsoft.VisualBasic.Core", "System.Text.Json",
	} {
		run.Args = append(run.Args, filepath.Join(net10, n+".dll"))
	}
	var stderr bytes.Buffer
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("reflect.dll: %v\n%s", err, stderr.Bytes())
	}
	c := checker{t: t, self: dll}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		f := strings.Split(lines.Text(), "\t")
		switch f[0] {
		case "A":
			c.assembly(f)
		case "T":
			c.typ(f)
		case "F":
			c.field(f)
		case "M":
			c.method(f)
		}
	}
	t.Logf("%d types, %d fields, %d methods, %d P/Invokes equal", c.types, c.fields, c.methods, c.imports)
	if c.fields < 5000 || c.types < 1000 || c.methods < 20000 || c.imports < 300 {
		t.Errorf("only %d types, %d methods and %d P/Invokes compared", c.types, c.methods, c.imports)
	}
}

type checker struct {
	t              *testing.T
	self           string
	m              *Metadata
	types, methods int
	imports        int
	fields         int
}

func (c *checker) field(f []string) {
	c.fields++
	want := Field{RID: rid(f[1]), Name: f[3]}
	if fields, err := c.m.Fields(rid(f[2])); err != nil || !slices.Contains(fields, want) {
		c.t.Errorf("Fields(%s) = %v, %v; want %v among them", f[2], fields, err, want)
	}
}

func (c *checker) assembly(f []string) {
	path := f[1]
	if path == "self" {
		path = c.self
	}
	m, err := Parse(load(c.t, path))
	if err != nil {
		c.t.Fatalf("%s: %v", path, err)
	}
	c.m = m
	name, _ := m.AssemblyName()
	module, _ := m.ModuleName()
	mvid, _ := m.MVID()
	if id := strings.ToUpper(hex.EncodeToString(mvid[:])); name != f[2] || module != f[3] || id != f[4] {
		c.t.Errorf("%s: assembly %q module %q mvid %s, want %q", path, name, module, id, f[2:])
	}
}

func rid(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

func (c *checker) typ(f []string) {
	c.types++
	r := rid(f[1])
	if name, err := c.m.TypeName(r); err != nil || name != f[2] {
		c.t.Errorf("TypeName(%d) = %q, %v; want %q", r, name, err, f[2])
	} else if back := ParseTypeName(name).String(); back != name {
		c.t.Errorf("ParseTypeName(%q).String() = %q", name, back)
	}
	args, err := c.m.GenericParams(MakeToken(TableTypeDef, r))
	if err != nil || strings.Join(args, ",") != f[3] {
		c.t.Errorf("GenericParams of %s = %q, %v; want %q", f[2], args, err, f[3])
	}
}

func (c *checker) method(f []string) {
	c.methods++
	r := rid(f[1])
	d, err := c.m.MethodDef(r)
	if err != nil || d.Name != f[3] || d.IsStatic() != (f[4] == "True") {
		c.t.Errorf("MethodDef(%d) = %+v, %v; want %q", r, d, err, f)
	}
	if owner, err := c.m.MethodOwner(r); err != nil || owner != rid(f[2]) {
		c.t.Errorf("MethodOwner(%d) = %d, %v; want %s", r, owner, err, f[2])
	}
	if names, err := c.m.ParamNames(r); err != nil || strings.Join(names, ",") != f[5] {
		c.t.Errorf("ParamNames(%d) of %s = %q, %v; want %q", r, f[3], names, err, f[5])
	}
	args, err := c.m.GenericParams(MakeToken(TableMethodDef, r))
	if err != nil || strings.Join(args, ",") != f[6] {
		c.t.Errorf("GenericParams of %s = %q, %v; want %q", f[3], args, err, f[6])
	}
	sig, err := DecodeMethodSig(d.Signature)
	if err != nil || int(sig.GenericParamCount) != len(args) || sig.HasThis == d.IsStatic() {
		c.t.Errorf("DecodeMethodSig of %s: %+v, %v", f[3], sig, err)
	}
	i, ok, err := c.m.Import(r)
	if err != nil || ok != (f[8] != "") || ok && i.Name+" in "+i.Library != f[8] {
		c.t.Errorf("Import of %s = %+v, %v, %v; want %q", f[3], i, ok, err, f[8])
	} else if ok {
		c.imports++
	}
	want := "(" + f[7] + ")"
	if sig.Conv == CallVarArg {
		want = strings.Replace(want, "()", "(__arglist)", 1)
	}
	if got := c.m.FormatParams(sig, TypeArgs{}, Full); got != want {
		c.t.Errorf("FormatParams of %s = %s, want %s", f[3], got, want)
	}
}

// TestEveryAssembly touches every row of every assembly of the kit.
func TestEveryAssembly(t *testing.T) {
	layer.Live(t)
	files, _ := filepath.Glob(filepath.Join(kit(t), "net10", "*.dll"))
	seen := 0
	for _, path := range files {
		b, err := peMetadata(path)
		if err != nil {
			continue // not managed
		}
		seen++
		m, err := Parse(b)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		touch(m, 1<<20, func(what string, err error) {
			if err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(path), what, err)
			}
		})
	}
	t.Logf("%d assemblies", seen)
	if seen < 100 {
		t.Errorf("only %d assemblies of %d files", seen, len(files))
	}
}

// TestImplements distinguishes an async state machine from an iterator.
func TestImplements(t *testing.T) {
	m, err := Parse(load(t, filepath.Join(kit(t), "net10", "System.Private.CoreLib.dll")))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for rid := uint32(1); rid <= m.Rows(TableTypeDef); rid++ {
		name, _ := m.TypeName(rid)
		if !strings.Contains(name, ">d__") {
			continue
		}
		for _, i := range []string{
			"System.Runtime.CompilerServices.IAsyncStateMachine", "System.Collections.Generic.IEnumerator`1",
		} {
			ok, err := m.Implements(rid, i)
			if err != nil {
				t.Errorf("Implements(%s, %s): %v", name, i, err)
			}
			if ok {
				found[i]++
			}
		}
	}
	if len(found) != 2 {
		t.Errorf("state machines by interface: %v, want some of both", found)
	}
}

func coreLib(b *testing.B) []byte {
	return load(b, filepath.Join(kit(b), "net10", "System.Private.CoreLib.dll"))
}

func BenchmarkParse(b *testing.B) {
	data := coreLib(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirstName is the cold start: parse, then name one method.
func BenchmarkFirstName(b *testing.B) {
	data := coreLib(b)
	for b.Loop() {
		m, _ := Parse(data)
		if _, err := methodText(m, m.Rows(TableMethodDef)/2); err != nil {
			b.Fatal(err)
		}
	}
}

func methodText(m *Metadata, rid uint32) (string, error) {
	d, err := m.MethodDef(rid)
	if err != nil {
		return "", err
	}
	owner, err := m.MethodOwner(rid)
	if err != nil {
		return "", err
	}
	name, err := m.TypeName(owner)
	if err != nil {
		return "", err
	}
	sig, err := DecodeMethodSig(d.Signature)
	if err != nil {
		return "", err
	}
	return name + "." + d.Name + m.FormatParams(sig, TypeArgs{}, Full), nil
}

func BenchmarkMethodText(b *testing.B) {
	m, err := Parse(coreLib(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n, rid := m.Rows(TableMethodDef), uint32(0)
	for b.Loop() {
		rid = (rid+7919)%n + 1
		if _, err := methodText(m, rid); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTypeName(b *testing.B) {
	m, err := Parse(coreLib(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n, rid := m.Rows(TableTypeDef), uint32(0)
	for b.Loop() {
		rid = (rid+7919)%n + 1
		if _, err := m.TypeName(rid); err != nil {
			b.Fatal(err)
		}
	}
}

// TestPortablePDB lays out the tables of a stand-alone PDB, whose indices reach
// into the tables of another file.
func TestPortablePDB(t *testing.T) {
	layer.Live(t)
	dir := kit(t)
	work := t.TempDir()
	src := filepath.Join(work, "p.cs")
	const program = "class P { static void Main() { int local = 1; System.Console.Write(local); } }"
	if err := os.WriteFile(src, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	csc := exec.Command(filepath.Join(dir, "bin", "csc"), "net10", "-debug:portable",
		"-out:"+filepath.Join(work, "p.dll"), src)
	if out, err := csc.CombinedOutput(); err != nil {
		t.Fatalf("csc: %v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(work, "p.pdb"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if m.PDBStream() == nil || m.Rows(TableDocument) == 0 || m.Rows(TableMethodDebugInformation) != 2 {
		t.Errorf("documents %d, methods %d, want 1 and 2", m.Rows(TableDocument), m.Rows(TableMethodDebugInformation))
	}
	var locals []string
	for rid := uint32(1); rid <= m.Rows(TableLocalVariable); rid++ {
		i, _ := m.Cell(TableLocalVariable, rid, 2)
		s, err := m.String(i)
		if err != nil {
			t.Error(err)
		}
		locals = append(locals, s)
	}
	if !slices.Equal(locals, []string{"local"}) {
		t.Errorf("local variables %q, want %q", locals, "local")
	}
}
