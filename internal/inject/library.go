package inject

import (
	"embed"
	"errors"
	"fmt"
)

// libraries has the files that make agent has built.
//
//go:embed lib
var libraries embed.FS

// ErrNoLibrary: our program was built without the agent.
var ErrNoLibrary = errors.New("clrsnap was built without the in-process agent")

// Library returns the agent for Linux on goarch, for example "amd64": an ELF shared library. The
// error is ErrNoLibrary.
func Library(goarch string) ([]byte, error) {
	library, err := libraries.ReadFile("lib/libclrsnap-agent-linux-" + goarch + ".so")
	if err != nil {
		return nil, fmt.Errorf("%w for %s: build clrsnap with make build on a machine with a C compiler",
			ErrNoLibrary, goarch)
	}
	return library, nil
}
