package snapshot

import (
	"cmp"
	"slices"
)

type heapKey struct{ name, assembly, context string }

func changes(now, before []HeapType) []HeapChange {
	all := map[heapKey]*HeapChange{}
	at := func(t *HeapType) *HeapChange {
		k := heapKey{t.Name, t.Assembly, t.Context}
		c := all[k]
		if c == nil {
			c = &HeapChange{Name: t.Name, Assembly: t.Assembly, Context: t.Context}
			all[k] = c
		}
		return c
	}
	for i := range now {
		c := at(&now[i])
		c.Now.Add(now[i].HeapAmount)
		c.Count += int64(now[i].Count)
		c.Bytes += int64(now[i].Bytes)
	}
	for i := range before {
		c := at(&before[i])
		c.Count -= int64(before[i].Count)
		c.Bytes -= int64(before[i].Bytes)
	}
	var out []HeapChange
	for _, c := range all {
		if c.Count != 0 || c.Bytes != 0 {
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b HeapChange) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Assembly, b.Assembly), cmp.Compare(a.Context, b.Context))
	})
	return out
}
