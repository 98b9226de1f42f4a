package jsonwriter

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestHidden: every character that reaches a terminal is shown unchanged, and every value is read back unchanged.
func TestHidden(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r < 0xd800 || r > 0xdfff {
			all.WriteRune(r)
		}
	}
	for _, s := range []string{
		"", "Größe <T> \"q\" \\ \t", "\u009b31m", "\u202etxt.exe\u2066", "\x7f\x1b]0;x\a", "\u2028\U000e0041",
		all.String(),
	} {
		var b bytes.Buffer
		w := New(&b)
		w.Open(struct{ A string }{s})
		w.Field(s, []string{s})
		w.Text("}")
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.String() {
			if r != '\n' && !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r) {
				t.Errorf("%.20q: %U is written as it is", s, r)
			}
		}
		var got map[string]any
		if err := json.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatalf("%.20q: %v", s, err)
		}
		if list, ok := got[s].([]any); !ok || list[0] != s || s != "A" && got["A"] != s {
			t.Errorf("%.20q is read back as something else", s)
		}
		var one string
		if err := json.Unmarshal([]byte(String(s)), &one); err != nil || one != s {
			t.Errorf("%.20q: %v", s, err)
		}
	}
}
