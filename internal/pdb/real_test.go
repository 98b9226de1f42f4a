package pdb

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/pe"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

var update = flag.Bool("update", false, "write what TestFixture compares with anew")

// The fixture is an output of emit for testdata/shapes, with its PDB inside, and the witness's
// findings in the fixture.
const fixture, fixtureFacts = "testdata/shapes.dll", "testdata/shapes.txt"

// TestFixture is TestAgainstReflection without .NET. The fixture is written by
// go test -tags live -run TestAgainst ./internal/pdb -update
func TestFixture(t *testing.T) {
	facts, err := os.ReadFile(fixtureFacts)
	if err != nil {
		t.Fatal(err)
	}
	theirs := strings.Split(strings.TrimSpace(string(facts)), "\n")
	if len(theirs) < 500 {
		t.Errorf("only %d facts", len(theirs))
	}
	same(t, fixture, describe(t, fixture, codeSizes(t, theirs)), theirs)
}

// TestAgainstReflection compares our readings of the PDBs of all programs, and of a
// program with every kind of sequence point, with System.Reflection.Metadata's readings.
func TestAgainstReflection(t *testing.T) {
	layer.Matrix(t)
	kit := testenv.Kit(t)
	made := shapes(t, kit)
	if *update {
		b, err := os.ReadFile(made[len(made)-1])
		if err == nil {
			err = os.WriteFile(fixture, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	dlls := append(append(programs(t), made...), fixture)
	host := kit.Host(testenv.DefaultRuntime)
	witness := exec.Command(host, append([]string{compile(t, kit, "witness.dll", "testdata/witness.cs")}, dlls...)...)
	var stderr bytes.Buffer
	witness.Stderr = &stderr
	out, err := witness.Output()
	if err != nil {
		t.Fatalf("witness.dll: %v\n%s", err, stderr.Bytes())
	}
	theirs := cut(t, out)
	if *update {
		if err := os.WriteFile(fixtureFacts, []byte(strings.Join(theirs[fixture], "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	total := map[string]int{}
	for _, dll := range dlls {
		ours := describe(t, dll, codeSizes(t, theirs[dll]))
		same(t, dll, ours, theirs[dll])
		for _, fact := range ours {
			total[fact[:1]]++
		}
	}
	t.Logf("%d assemblies, facts by kind: %v", len(dlls), total)
	for kind, least := range map[string]int{
		"V": 40, "S": 40, "R": 39, "X": 20, "I": 40, "D": 200, "P": 80000, "B": 200000, "K": 80, "A": 60,
		"L": 2, "E": 6,
	} {
		if least = max(1, least/layer.Size(2, 1)); total[kind] < least {
			t.Errorf("only %d facts of kind %s, want %d", total[kind], kind, least)
		}
	}
}

// programs builds the programs of testdata/apps, optimised with a PDB beside, and unoptimised with an
// embedded PDB.
func programs(t *testing.T) (dlls []string) {
	t.Helper()
	folders, err := os.ReadDir("../../testdata/apps")
	if err != nil {
		t.Fatal(err)
	}
	var embedded []string
	for i, folder := range folders {
		if folder.Name() == "common" {
			continue
		}
		dlls = append(dlls, testenv.Build(t, folder.Name()))
		if i%layer.Size(4, 1) == 0 {
			embedded = append(embedded, folder.Name())
		}
	}
	return append(dlls, testenv.BuildEach(t, embedded, testenv.DefaultRuntime, "-o-", "-debug:embedded")...)
}

// compile makes a program of sources in testdata with the kit's compiler.
func compile(t *testing.T, kit testenv.DotNet, name string, args ...string) string {
	t.Helper()
	dll := filepath.Join(t.TempDir(), name)
	csc := exec.Command(kit.Compiler(), append([]string{"net10", "-nowarn:CS0162", "--rtc", "-out:" + dll}, args...)...)
	if out, err := csc.CombinedOutput(); err != nil {
		t.Fatalf("csc %v: %v\n%s", args, err, out)
	}
	return dll
}

// shapes compiles testdata/shapes in all ways.
func shapes(t *testing.T, kit testenv.DotNet) (dlls []string) {
	t.Helper()
	sources := []string{"testdata/shapes/first.cs", "testdata/shapes/second.cs"}
	for _, optimise := range []string{"-o+", "-o-"} {
		for _, debug := range []string{"-debug:portable", "-debug:embedded"} {
			args := append([]string{optimise, debug, "-deterministic+"}, sources...)
			dlls = append(dlls, compile(t, kit, "shapes.dll", args...))
		}
	}
	dlls = append(dlls, compile(t, kit, "wide.dll", "-target:library", wide(t)))
	// The compiler's time of day in place of a hash: -deterministic-.
	dlls = append(dlls, compile(t, kit, "shapes.dll", append([]string{"-deterministic-"}, sources...)...))
	for _, debug := range []string{"portable", "embedded"} {
		dlls = append(dlls, emit(t, kit, debug))
	}
	return dlls
}

// wide writes a program with so many methods that row numbers and heap indices take 4 bytes.
func wide(t *testing.T) string {
	t.Helper()
	var text bytes.Buffer
	fmt.Fprintln(&text, "using System.Threading.Tasks;\nclass Wide {")
	for i := range 1<<16 + 100 {
		fmt.Fprintf(&text, "int M%d() => %d;\n", i, i)
	}
	fmt.Fprintln(&text, "async Task Last() {\nawait Task.Yield();\n}\n}")
	file := filepath.Join(t.TempDir(), "wide.cs")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

const sourceLinkJSON = `{"documents": {"/src/*": "https://example.org/raw/1234/*",` +
	` "/src/short.cs": "https://example.org/s"}}`

// emit compiles testdata/shapes with Source Link and embedded sources.
func emit(t *testing.T, kit testenv.DotNet, debug string) string {
	t.Helper()
	roslyn := filepath.Join(kit.Dir, "csc")
	libraries := []string{"Microsoft.CodeAnalysis.dll", "Microsoft.CodeAnalysis.CSharp.dll"}
	args := []string{"testdata/emit.cs"}
	for _, l := range libraries {
		args = append(args, "-r:"+filepath.Join(roslyn, l))
	}
	emitter := compile(t, kit, "emit.dll", args...)
	for _, l := range libraries {
		if err := os.Symlink(filepath.Join(roslyn, l), filepath.Join(filepath.Dir(emitter), l)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	dll, link := filepath.Join(dir, "shapes.dll"), filepath.Join(dir, "sourcelink.json")
	if err := os.WriteFile(link, []byte(sourceLinkJSON), 0o644); err != nil {
		t.Fatal(err)
	}
	sources := []string{"testdata/shapes/first.cs", "testdata/shapes/second.cs", "testdata/shapes/short.cs"}
	run := exec.Command(kit.Host(testenv.DefaultRuntime),
		append([]string{emitter, filepath.Join(kit.Dir, "net10"), dll, debug, link}, sources...)...)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("emit: %v\n%s", err, out)
	}
	return dll
}

// cut sorts the witness's lines by assembly.
func cut(t *testing.T, out []byte) map[string][]string {
	t.Helper()
	facts := map[string][]string{}
	path := ""
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		if p, ok := strings.CutPrefix(lines.Text(), "F\t"); ok {
			path = p
			continue
		}
		facts[path] = append(facts[path], lines.Text())
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return facts
}

// same compares facts without regard to their order.
func same(t *testing.T, dll string, ours, theirs []string) {
	t.Helper()
	slices.Sort(ours)
	slices.Sort(theirs)
	shown := 0
	for len(ours) > 0 || len(theirs) > 0 {
		switch {
		case len(ours) > 0 && len(theirs) > 0 && ours[0] == theirs[0]:
			ours, theirs = ours[1:], theirs[1:]
			continue
		case len(theirs) == 0 || len(ours) > 0 && ours[0] < theirs[0]:
			t.Errorf("%s: only we say    %s", dll, ours[0])
			ours = ours[1:]
		default:
			t.Errorf("%s: only they say  %s", dll, theirs[0])
			theirs = theirs[1:]
		}
		if shown++; shown == 10 {
			t.Errorf("%s: and more", dll)
			return
		}
	}
}

// codeSizes is the number of IL offsets that the witness looked up in each method: all offsets.
func codeSizes(t *testing.T, facts []string) map[uint32]uint32 {
	t.Helper()
	size := map[uint32]uint32{}
	for _, fact := range facts {
		if !strings.HasPrefix(fact, "B\t") {
			continue
		}
		var method, il uint32
		if _, err := fmt.Sscanf(fact, "B\t%d\t%d", &method, &il); err != nil {
			t.Fatalf("%q: %v", fact, err)
		}
		size[method] = max(size[method], il+1)
	}
	return size
}

// describe writes our facts about an assembly and its PDB as testdata/witness.cs does.
func describe(t *testing.T, dll string, size map[uint32]uint32) (facts []string) {
	t.Helper()
	say := func(fields ...any) {
		text := make([]string, len(fields))
		for i, f := range fields {
			text[i] = fmt.Sprint(f)
		}
		facts = append(facts, strings.Join(text, "\t"))
	}
	r, err := os.Open(dll)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	mem := pe.File(r)
	d, err := pe.DebugDirectory(mem, 0)
	if err != nil {
		t.Fatalf("%s: %v", dll, err)
	}
	for _, c := range d.CodeView {
		say("V", title(c.Portable), upper(c.GUID[:]), c.Age, c.Stamp, c.Path)
	}
	for _, s := range d.Checksums {
		say("S", s.Algorithm, upper(s.Sum))
	}
	if d.Reproducible {
		say("R")
	}
	f, raw := pdbOf(t, dll, d, r)
	if d.HasEmbedded() {
		sum := sha256.Sum256(raw)
		say("X", upper(sum[:]))
	}
	describePDB(t, f, say)
	for m := range f.Methods() {
		describeMethod(t, f, m+1, size[m+1], say)
	}
	return facts
}

func title(b bool) string        { return map[bool]string{true: "True", false: "False"}[b] }
func upper(b []byte) string      { return fmt.Sprintf("%X", b) }
func base64Text(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// pdbOf opens the PDB of an assembly as the product will: matched by id and checksum.
func pdbOf(t *testing.T, dll string, d *pe.Debug, r *os.File) (f *File, raw []byte) {
	t.Helper()
	var err error
	if d.HasEmbedded() {
		if raw, err = d.Embedded(pe.File(r)); err == nil {
			f, err = Embedded(d, pe.File(r))
		}
	} else if raw, err = os.ReadFile(strings.TrimSuffix(dll, ".dll") + ".pdb"); err == nil {
		f, err = Match(d, raw)
	}
	if err != nil {
		t.Fatalf("the PDB of %s: %v", dll, err)
	}
	return f, raw
}

func describePDB(t *testing.T, f *File, say func(...any)) {
	t.Helper()
	id := f.ID()
	say("I", upper(id[:]), f.Methods())
	for i := int32(1); i <= f.Documents(); i++ {
		d, err := f.Document(i)
		if err != nil {
			t.Fatal(err)
		}
		say("D", i, d.Name, upper(d.HashAlgorithm[:]), upper(d.Hash), upper(d.Language[:]))
		content, ok, err := f.Source(i)
		if err != nil || ok != f.HasSource(i) {
			t.Errorf("source of %s: %v, %v", d.Name, ok, err)
		}
		if !ok {
			continue
		}
		sum := sha256.Sum256(content)
		say("E", i, len(content), upper(sum[:]))
		if same, known := d.Is(content); !same || !known {
			t.Errorf("the source of %s has another hash (known: %v)", d.Name, known)
		}
		if same, known := d.Is(append(content, ' ')); same || !known {
			t.Errorf("another source of %s has its hash (known: %v)", d.Name, known)
		}
	}
	if blob := f.indexed().sourceLink; blob != 0 {
		b, err := f.md.Blob(blob)
		if err != nil {
			t.Fatal(err)
		}
		say("L", base64Text(b))
	}
}

func describeMethod(t *testing.T, f *File, method, size uint32, say func(...any)) {
	t.Helper()
	if kickoff, ok := f.Kickoff(method); ok {
		say("K", method, kickoff)
		if back, ok := f.MoveNext(kickoff); !ok || back != method {
			t.Errorf("MoveNext of %d is %d, %v; want %d", kickoff, back, ok, method)
		}
	}
	a, ok, err := f.Async(method)
	if err != nil {
		t.Errorf("Async(%d): %v", method, err)
	}
	if ok {
		handler := -1
		if a.HasCatch {
			handler = int(a.Catch)
		}
		line := fmt.Sprint(handler)
		for _, s := range a.Steps {
			line += fmt.Sprintf(" %d:%d:%d", s.Yield, s.Resume, s.Method)
		}
		say("A", method, line)
	}
	points, err := f.Lines(method)
	if err != nil {
		t.Fatalf("Lines(%d): %v", method, err)
	}
	for _, p := range points {
		say("P", method, p.IL, p.Line, p.Column, p.EndLine, p.EndColumn, p.Document, title(p.Hidden))
	}
	if len(points) == 0 {
		return
	}
	for il := range size {
		best := "none"
		if p, _, ok := f.LineIn(method, il, il+1); ok {
			best = fmt.Sprintf("%d:%d:%d", p.Line, p.Column, p.Document)
		}
		say("B", method, il, best)
	}
}
