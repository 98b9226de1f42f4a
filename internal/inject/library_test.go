package inject

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"clrsnap/internal/testenv/layer"
)

// TestLibrary: the embedded library is built from the present sources; without a library, the
// error says so.
func TestLibrary(t *testing.T) {
	lib, err := Library(runtime.GOARCH)
	if err != nil {
		if !errors.Is(err, ErrNoLibrary) || layer.Required {
			t.Errorf("%v", err)
		}
		isSentence(t, err.Error(), runtime.GOARCH, "make build", "C compiler")
		return
	}
	if !bytes.Equal(lib, library(t)) {
		t.Error("the agent in internal/inject/lib is not that of the present sources and compiler: run make agent")
	}
}

func TestLibraryOfOther(t *testing.T) {
	_, err := Library("s390x")
	if !errors.Is(err, ErrNoLibrary) {
		t.Errorf("%v", err)
	}
	isSentence(t, err.Error(), "s390x", "make build")
}
