package pdb

import (
	"errors"
	"strings"
	"testing"
)

func TestSourceLinkURL(t *testing.T) {
	l, err := ParseSourceLink([]byte("\ufeff" + `{"other": [1], "documents": {
		"/src/*": "https://example.org/raw/1234/*",
		"/src/sub/*": "https://example.org/sub?at=*&v=1",
		"/src/sub/one.cs": "https://example.org/one",
		"C:\\Work\\*": "http://example.org/win/*",
		"/script/*": "javascript:alert(1)//*",
		"/file/*": "file:///etc/*",
		"/space/*": "https://example.org/ /*",
		"/colour/*": "https://example.org/\u001b[31m*"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for document, want := range map[string]string{
		"/src/a.cs":                  "https://example.org/raw/1234/a.cs",
		"/src/a b/ü+&?#%.cs":         "https://example.org/raw/1234/a%20b/%C3%BC%2B%26%3F%23%25.cs",
		"/src/sub/two.cs":            "https://example.org/sub?at=two.cs&v=1",
		"/src/sub/one.cs":            "https://example.org/one",
		"/SRC/Sub/ONE.cs":            "https://example.org/one",
		"/src/sub/one.cs2":           "https://example.org/sub?at=one.cs2&v=1",
		`c:\work\Shop\Order.cs`:      "http://example.org/win/Shop/Order.cs",
		"/src/":                      "https://example.org/raw/1234/",
		"/src":                       "",
		"/elsewhere/a.cs":            "",
		"/src/*.cs":                  "",
		"":                           "",
		"/script/x":                  "",
		"/file/passwd":               "",
		"/space/x":                   "",
		"/colour/x":                  "",
		"/src/\x1b]8;;x\x07":         "https://example.org/raw/1234/%1B%5D8%3B%3Bx%07",
		strings.Repeat("/src", 2000): "",
	} {
		if got, ok := l.URL(document); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v; want %q", document, got, ok, want)
		}
	}
	if url, ok := (*SourceLink)(nil).URL("/src/a.cs"); ok {
		t.Errorf("without Source Link: %q", url)
	}
}

func TestSourceLinkErrors(t *testing.T) {
	for _, text := range []string{
		"", "[]", "7", `{"documents": []}`, `{"documents": {"a": 1}}`, `{"documents": {"": "https://a"}}`,
		`{"documents": {"a*b": "https://a/*"}}`, `{"documents": {"a**": "https://a/*"}}`,
		`{"documents": {"a*": "https://a/"}}`, `{"documents": {"a": "https://a/*"}}`,
		`{"documents": {"a*": "https://a/*/*"}}`, `{"documents": {"a": "b"}`,
		strings.Repeat("[", 1<<19), strings.Repeat(" ", maxSourceLink+1),
	} {
		if _, err := ParseSourceLink([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	for _, text := range []string{"{}", `{"documents": {}}`, `{"Documents": 7}`} {
		if l, err := ParseSourceLink([]byte(text)); err != nil || l == nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestSourceLinkOfModule(t *testing.T) {
	b := one(1, "")
	if l, err := b.parse(t).SourceLink(); l != nil || err != nil {
		t.Errorf("none: %v, %v", l, err)
	}
	b.custom(tagModule, 1, kindSourceLink, []byte(`{"documents": {"/*": "https://example.org/*"}}`))
	l, err := b.parse(t).SourceLink()
	if err != nil {
		t.Fatal(err)
	}
	if url, _ := l.URL("/a.cs"); url != "https://example.org/a.cs" {
		t.Errorf("URL %q", url)
	}
	b.custom(tagModule, 1, kindSourceLink, []byte(`{}`))
	if l, err := b.parse(t).SourceLink(); !errors.Is(err, ErrMalformed) {
		t.Errorf("twice: %v, %v", l, err)
	}
	_, fixed := fixturePDB(t)
	f, err := Parse(fixed)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = f.SourceLink(); err != nil {
		t.Fatal(err)
	}
	if url, _ := l.URL("/src/first.cs"); url != "https://example.org/raw/1234/first.cs" {
		t.Errorf("URL %q", url)
	}
}
