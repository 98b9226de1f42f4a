package symbols_test

import (
	"context"
	"fmt"
	"log"

	"clrsnap"
	"clrsnap/symbols"
)

// Stacks with source lines for framework methods: the methods' PDBs are fetched from Microsoft's server, once.
func ExampleNew() {
	cache, err := symbols.DefaultCache()
	if err != nil {
		log.Fatal(err)
	}
	store, err := symbols.New(symbols.Options{
		Servers: []string{"https://msdl.microsoft.com/download/symbols"}, Cache: cache,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	ctx := context.Background()
	p, err := clrsnap.Open(ctx, 4242, clrsnap.Options{Lines: true, Source: store})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	s, err := p.SnapshotAll(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range s.Threads[0].Frames {
		if f.Line != nil {
			fmt.Println(f.Display, f.Line.File, f.Line.Line)
		}
	}
}
