package export

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
)

// hostileName is a possible text of every name that a target chooses.
const hostileName = `"]},"forged":{"a":["` + "\\\x00\x1b[31m\u0085\u202e\u2028</script><!--\xff\xfe'`&\n\t"

// eachString replaces every text in a value, except texts of an enumeration.
func eachString(v reflect.Value, replace func(string) string) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() && v.CanSet() {
			v.SetString(replace(v.String()))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			eachString(v.Elem(), replace)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			eachString(v.Index(i), replace)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			eachString(v.Field(i), replace)
		}
	}
}

// TestHostileNames: hostile names change nothing except themselves in a file. A recording comes back
// with its names.
func TestHostileNames(t *testing.T) {
	for name, shop := range map[string]func() *profile.Recording{
		"events": profiletest.EventShop, "locks": profiletest.LockShop, "resting": profiletest.RestingShop,
		"source": profiletest.SourceShop,
	} {
		t.Run(name, func(t *testing.T) {
			r := shop()
			long := false
			eachString(reflect.ValueOf(r), func(s string) string {
				if s == "" {
					return s
				}
				if !long {
					long, s = true, s+strings.Repeat("x", 64<<10)
				}
				return s + hostileName
			})
			packed := written(t, WriteRecording, r)
			file, honest := inflated(t, packed), inflated(t, written(t, WriteRecording, shop()))
			sameMembers(t, "a recording", file, honest)
			if name == "events" && !strings.Contains(string(members(t, file)["waits"]), `forged\":`) {
				t.Error("no wait has the name of a type")
			}
			got, err := ReadRecording(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			eachString(reflect.ValueOf(r), func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") })
			eachString(reflect.ValueOf(r), func(s string) string {
				return strings.ReplaceAll(s, "<!--\uFFFD'", "<!--\uFFFD\uFFFD'") // JSON has U+FFFD for each byte
			})
			if !reflect.DeepEqual(got, r) {
				t.Error("the recording that is read differs from that which was written")
			}
			for format, write := range map[string]func(io.Writer, *profile.Recording) error{
				"Chrome's": ChromeTrace, "speedscope's": Speedscope,
			} {
				sameMembers(t, format, written(t, write, r), written(t, write, shop()))
			}
		})
	}
}

func members(t *testing.T, file []byte) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(file, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// sameMembers requires that a JSON document is valid and has the members of another document, except
// for members that depend on names.
func sameMembers(t *testing.T, name string, file, honest []byte) {
	t.Helper()
	keys := func(file []byte) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(members(t, file))), func(key string) bool {
			return key == "idle" || key == "waits"
		})
	}
	got, want := keys(file), keys(honest)
	if !slices.Equal(got, want) {
		t.Errorf("%s file has %q, want %q", name, got, want)
	}
}
