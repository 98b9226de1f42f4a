package why

import (
	"maps"
	"slices"

	"clrsnap/internal/gather"
)

// sortedBy are the sorted values of a map.
func sortedBy[K comparable, V any](m map[K]V, order func(a, b V) int) []V {
	return slices.SortedFunc(maps.Values(m), order)
}

// evidence is the input of the judges.
type evidence struct{ gather.Evidence }
