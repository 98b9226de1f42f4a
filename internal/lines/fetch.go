package lines

import (
	"context"
	"sync"

	"clrsnap/symbols"
)

// Bounds of fetch.
const (
	atOnce     = 4   // files at the same time
	maxFetched = 512 // files: few programs have so many assemblies on their stacks
)

// fetched is a file, or the reason why the file is missing.
type fetched struct {
	file symbols.File
	err  error
}

// fetch gets files, at most the first maxFetched files.
func fetch(ctx context.Context, from symbols.Source, keys []symbols.Key) []fetched {
	keys = keys[:min(len(keys), maxFetched)]
	out := make([]fetched, len(keys))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(atOnce, len(keys)) {
		workers.Go(func() {
			for i := range next {
				out[i].file, out[i].err = from.Open(ctx, keys[i])
			}
		})
	}
	for i := range keys {
		next <- i
	}
	close(next)
	workers.Wait()
	return out
}
