package symbol

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxMangled bounds the names that are demangled. The demangler can need 10
// bytes for the square of a name's length: 10 MB for this one.
const maxMangled = 1024

// Demangle returns the readable form of a symbol's name, in full and without
// the parameters of functions and templates. A name that is not mangled comes
// back as it is, without the version that .symtab appends ("memcpy@@GLIBC_2.14");
// so does one of over 1,024 bytes.
func Demangle(raw string) (full, short string) {
	if i := strings.IndexByte(raw, '@'); i > 0 {
		raw = raw[:i]
	}
	if len(raw) > maxMangled {
		return raw, raw
	}
	// A hostile name can stand for one that is exponentially longer.
	limit := demangle.MaxLength(12)
	full = demangled(raw, limit)
	short = demangled(raw, limit, demangle.NoParams, demangle.NoTemplateParams, demangle.NoEnclosingParams)
	return full, short
}

// demangled also survives a demangler that panics, since its input comes from
// the target.
func demangled(raw string, options ...demangle.Option) (name string) {
	defer func() {
		if recover() != nil {
			name = raw
		}
	}()
	return demangle.Filter(raw, options...)
}
