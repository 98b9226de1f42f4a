package symbol

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxMangled bounds the length of a demangled name. The demangler can need 10 bytes for the square of a name's length:
// 10 MB at this bound.
const maxMangled = 1024

// Demangle returns the readable form of a symbol's name, in full and without the parameters of functions and templates.
// A name that is not mangled comes back unchanged, without the version in .symtab ("memcpy@@GLIBC_2.14"). A name of
// over 1,024 bytes comes back unchanged, too.
func Demangle(raw string) (full, short string) {
	if i := strings.IndexByte(raw, '@'); i > 0 {
		raw = raw[:i]
	}
	if len(raw) > maxMangled {
		return raw, raw
	}
	// A hostile name can stand for an exponentially longer name.
	limit := demangle.MaxLength(12)
	full = demangled(raw, limit)
	short = demangled(raw, limit, demangle.NoParams, demangle.NoTemplateParams, demangle.NoEnclosingParams)
	return full, short
}

// demangled also survives a panic of the demangler, since its input comes from the target.
func demangled(raw string, options ...demangle.Option) (name string) {
	defer func() {
		if recover() != nil {
			name = raw
		}
	}()
	return demangle.Filter(raw, options...)
}
