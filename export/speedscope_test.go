package export

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/testenv/layer"
)

// validator is the program that validates files against a JSON schema. Its arguments are
// the schema and the files.
const validator = `
const fs = require("fs"), [schema, ...files] = process.argv.slice(1);
const Ajv = require("ajv").default;
const check = new Ajv({strict: false, allErrors: true}).compile(JSON.parse(fs.readFileSync(schema)));
for (const f of files)
	if (!check(JSON.parse(fs.readFileSync(f)))) {
		console.log(f, JSON.stringify(check.errors, null, 1));
		process.exitCode = 1;
	}
`

// TestSpeedscopeSchema validates clrsnap's files against speedscope's published schema, with somebody
// else's validator.
func TestSpeedscopeSchema(t *testing.T) {
	dir := speedscopeDir(t)
	good, bad := filepath.Join(t.TempDir(), "good.json"), filepath.Join(t.TempDir(), "bad.json")
	file := written(t, Speedscope, recorded())
	for name, text := range map[string]string{good: string(file),
		bad: strings.Replace(string(file), `"weights":[`, `"weights":["x",`, 1)} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	validate := func(files ...string) (string, error) {
		schema := filepath.Join(dir, "node_modules", "speedscope", "dist", "release", "file-format-schema.json")
		cmd := exec.Command("node", append([]string{"-e", validator, schema}, files...)...)
		cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := validate(good); err != nil {
		t.Errorf("speedscope's schema refuses our file: %v\n%s", err, out)
	}
	if out, err := validate(bad); err == nil || !strings.Contains(out, "weights") {
		t.Errorf("the validator finds nothing wrong with a wrong file: %v\n%s", err, out)
	}
}

// speedscopeDir is where scripts/get-speedscope.sh has put schema and validator.
func speedscopeDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CLRSNAP_SPEEDSCOPE")
	if cache, err := os.UserCacheDir(); dir == "" && err == nil {
		dir = filepath.Join(cache, "clrsnap-speedscope")
	}
	_, err := os.Stat(filepath.Join(dir, ".done"))
	if err == nil {
		_, err = exec.LookPath("node")
	}
	if err != nil {
		msg := "no schema and validator of speedscope files: " + err.Error() + ": run scripts/get-speedscope.sh"
		layer.Lacking(t, msg)
	}
	return dir
}
