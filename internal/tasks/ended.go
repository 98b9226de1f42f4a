package tasks

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/moment"
	"clrsnap/internal/session"
)

// MethodObjects are the objects of async methods that had not ended at one moment, each with its MethodTable.
type MethodObjects struct {
	tables map[arch.Addr]arch.Addr
	epoch  moment.Epoch // from before the first object was read until after the last; 0: not known
	Whole  bool         // no method is missing
}

// maxMethodObjects bounds the kept objects, some 40 bytes each. If there are more, none is kept.
const maxMethodObjects = 1 << 18

// noteObjects keeps the objects of the methods that have not ended. Pooled objects serve the next call, and are left
// out.
func (t *Walk) noteObjects(nodes []node, before moment.Epoch) *MethodObjects {
	if len(nodes) > maxMethodObjects {
		return nil
	}
	m := &MethodObjects{tables: make(map[arch.Addr]arch.Addr, len(nodes)), Whole: true}
	for i := range nodes {
		obj := nodes[i].obj
		if b, err := t.Reader.Box(obj); err == nil && b.Reused() {
			continue
		}
		table := t.tableOf(obj)
		if table == 0 {
			m.Whole = false
			continue
		}
		m.tables[obj] = table
	}
	if t.p.Moments().Unmoved(before) {
		m.epoch = before
	}
	return m
}

// MethodsEnded is how many of the async methods that had not ended at an earlier moment b have ended at a later moment
// a. exact: the collector has moved nothing in between, so each object was read again at its place. Otherwise the
// number is a lower bound: as many as there are less of each class. Methods that began after the earlier moment do not
// count. ok is false if a look has missed methods: then the number is not known.
func MethodsEnded(p *session.Process, b, a *MethodObjects) (ended int, exact, ok bool) {
	if b == nil || a == nil || !b.Whole || !a.Whole {
		return 0, false, false
	}
	if p.Moments().Unmoved(b.epoch) {
		p.Engine.Begin()
		if ended, ok = endedInPlace(p, b); ok && p.Moments().Unmoved(b.epoch) {
			return ended, true, true
		}
	}
	return fewer(b, a), false, true
}

// endedInPlace reads each object again. false: an object cannot be read.
func endedInPlace(p *session.Process, m *MethodObjects) (ended int, ok bool) {
	r := p.AsyncReader()
	for obj := range m.tables {
		at, err := r.Place(obj)
		if err != nil {
			return 0, false
		}
		if at != 0 {
			continue
		}
		class, err := p.Managed.Objects.Class(obj)
		if err != nil {
			return 0, false
		}
		complete, known := p.IsComplete(obj, class)
		if !known {
			return 0, false
		}
		if complete {
			ended++
		}
	}
	return ended, true
}

// fewer sums up by how much the objects of each class have become fewer.
func fewer(before, after *MethodObjects) (n int) {
	left := map[arch.Addr]int{}
	for _, table := range after.tables {
		left[table]++
	}
	for _, table := range before.tables {
		if left[table]--; left[table] < 0 {
			n++
		}
	}
	return n
}
