package pal

import "clrsnap/internal/arch"

// growth is the number of handles by which the table grows. The table has growth beside its size, both in four bytes.
const growth = 1024

// Learn finds the table of handles by a thread: the thread has an object, like everything with a handle. Each object
// refers to the lists of all objects, and the table is beside the lists.
func (r *Reader) Learn(b *Blocked) {
	if r.lists != 0 {
		return
	}
	obj, err := r.search.Pointer(b.Thread + arch.Addr(r.s.threadObject))
	if err != nil || !isPointer(obj) {
		return
	}
	data, err := r.search.Pointer(obj + arch.Addr(r.s.data))
	if err != nil || r.localThread(obj, data) != b.id {
		return
	}
	lists, err := r.search.Pointer(obj + arch.Addr(r.s.lists))
	if err != nil || !isPointer(lists) {
		return
	}
	size, err := r.search.Uint64(lists + arch.Addr(r.s.tableLen))
	if err == nil && size>>32 == growth && uint32(size) != 0 && uint32(size)%growth == 0 {
		r.lists = lists
	}
}

// ByHandle returns the object of a handle. false: the object has no state here, or the table is not known.
func (r *Reader) ByHandle(handle arch.Addr) (o Object, ok bool, err error) {
	index := uint64(handle>>handleShift) - 1
	if r.lists == 0 || handle == 0 || index >= maxHandles {
		return o, false, nil
	}
	count, err := r.mem.Uint32(r.lists + arch.Addr(r.s.tableLen))
	if err != nil {
		return o, false, err
	}
	table, err := r.mem.Pointer(r.lists + arch.Addr(r.s.table))
	if err != nil || index >= uint64(count) || !isPointer(table) {
		return o, false, err
	}
	entry := table + arch.Addr(index*entryLen)
	used, err := r.mem.Uint8(entry + entryAllocated)
	if err != nil || used != 1 {
		return o, false, err
	}
	obj, err := r.mem.Pointer(entry)
	if err != nil || !isPointer(obj) {
		return o, false, err
	}
	lists, err := r.mem.Pointer(obj + arch.Addr(r.s.lists))
	if err != nil || lists != r.lists {
		return o, false, err
	}
	data, err := r.mem.Pointer(obj + arch.Addr(r.s.data))
	if err != nil || data == 0 {
		return o, false, err
	}
	o, err = r.object(data)
	return o, err == nil, err
}
