// Apps compiles the changed programs of testdata/apps for frameworks, before tests start the programs.
//
//	go run ./scripts/apps FRAMEWORK...
package main

import (
	"fmt"
	"os"

	"clrsnap/internal/testenv"
)

func main() {
	for _, framework := range os.Args[1:] {
		if err := testenv.BuildAll(framework); err != nil {
			fmt.Fprintf(os.Stderr, "apps: %s: %v\n", framework, err)
			os.Exit(1)
		}
	}
}
