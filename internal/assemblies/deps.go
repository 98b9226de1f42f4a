package assemblies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"clrsnap/snapshot"
)

// Bounds of a deps.json. A large program's deps.json has a megabyte, a thousand libraries, and six objects within each
// other.
const (
	maxDeps   = 16 << 20 // bytes
	maxNested = 64
	maxListed = 1 << 16 // assemblies, and libraries
	maxName   = 255     // bytes: NAME_MAX of include/uapi/linux/limits.h
)

// types are the types of library in a deps.json. A reference is an assembly that a project takes from a folder: the
// assembly is in no package. Libraries of other types have no assemblies.
var types = map[string]snapshot.Origin{
	"project": snapshot.OfUser, "reference": snapshot.OfUser,
	"package": snapshot.OfPackage, "runtimepack": snapshot.OfFramework,
}

// rank orders origins. If several libraries have an assembly of the same name, the highest origin counts.
var rank = map[snapshot.Origin]int{snapshot.OfFramework: 1, snapshot.OfPackage: 2, snapshot.OfUser: 3}

var errDeps = errors.New("not a deps.json")

// Parse reads a deps.json. The result has the assemblies, by their simple names.
func Parse(text []byte) (map[string]snapshot.Origin, error) {
	if len(text) > maxDeps {
		return nil, fmt.Errorf("%w: it has %d bytes", errDeps, len(text))
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	d := depsReader{dec: json.NewDecoder(bytes.NewReader(text)), library: map[string]snapshot.Origin{}}
	err := d.object(func(key string) error {
		switch key {
		case "targets":
			return d.object(func(string) error { return d.object(d.assets) })
		case "libraries":
			return d.object(d.typeOf)
		}
		return d.skip()
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDeps, err)
	}
	out := map[string]snapshot.Origin{}
	for _, a := range d.listed {
		if of := d.library[a.library]; rank[of] > rank[out[a.name]] {
			out[a.name] = of
		}
	}
	return out, nil
}

// depsReader reads a deps.json piece by piece, so that only the wanted parts are kept.
type depsReader struct {
	dec     *json.Decoder
	listed  []listed
	library map[string]snapshot.Origin
}

// listed is an assembly of a library, such as "Npgsql/8.0.3".
type listed struct{ library, name string }

// assets reads a target's entry for a library.
func (d *depsReader) assets(library string) error {
	return d.object(func(kind string) error {
		if kind != "runtime" && kind != "runtimeTargets" {
			return d.skip()
		}
		return d.object(func(file string) error {
			if name := SimpleName(file); name != "" {
				if len(d.listed) >= maxListed {
					return fmt.Errorf("more than %d assemblies", maxListed)
				}
				d.listed = append(d.listed, listed{library, name})
			}
			return d.skip()
		})
	})
}

// typeOf reads the type of a library.
func (d *depsReader) typeOf(library string) error {
	return d.object(func(key string) error {
		if key != "type" {
			return d.skip()
		}
		t, err := d.dec.Token()
		if err != nil {
			return err
		}
		text, ok := t.(string)
		if !ok {
			return errors.New("the type of a library is no text")
		}
		if of := types[text]; of != "" {
			if len(d.library) >= maxListed {
				return fmt.Errorf("more than %d libraries", maxListed)
			}
			d.library[library] = of
		}
		return nil
	})
}

// object reads an object. value must read the value of each key.
func (d *depsReader) object(value func(key string) error) error {
	if t, err := d.dec.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(errors.New("an object is missing"), err)
	}
	for d.dec.More() {
		key, err := d.dec.Token()
		if err != nil {
			return err
		}
		if err := value(key.(string)); err != nil { // the decoder allows no other keys
			return err
		}
	}
	_, err := d.dec.Token()
	return err
}

// skip reads a value of any kind.
func (d *depsReader) skip() error {
	for depth := 0; ; {
		t, err := d.dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxNested {
				return errors.New("it is nested too deeply")
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// SimpleName is the simple name of the assembly in a file; "": the file is no assembly.
func SimpleName(path string) string {
	file := path[strings.LastIndexByte(path, '/')+1:]
	n := len(file) - len(".dll")
	if n < 1 || len(file) > maxName || !strings.EqualFold(file[n:], ".dll") && !strings.EqualFold(file[n:], ".exe") {
		return ""
	}
	return file[:n]
}
