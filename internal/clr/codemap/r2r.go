package codemap

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// image is the cached description of a ReadyToRun image. The tables themselves stay in the target; reads go through
// the target's page cache.
type image struct {
	info              arch.Addr // ReadyToRunInfo
	functions         arch.Addr
	count             uint32
	thunkLo, thunkEnd uint64 // RVAs of the delay-load thunks
	hotCold           arch.Addr
	hotColdPairs      uint32
	header            arch.Addr // READYTORUN_HEADER
}

const (
	maxFunctions = 1 << 24
	maxImages    = 1 << 12 // remembered images
	// maxFragmentsR2R bounds the search for the method entry of a funclet or a part.
	maxFragmentsR2R = 1 << 14
)

func (m *Map) image(module arch.Addr) (*image, error) {
	info, err := m.mem.Pointer(module + arch.Addr(m.l.ModR2R))
	if err != nil {
		return nil, err
	}
	if info == 0 {
		return nil, corrupt("the module at %v has a ReadyToRun section but no ReadyToRun information", module)
	}
	if comp, err := m.mem.Pointer(info + arch.Addr(m.l.R2RComp)); err != nil {
		return nil, err
	} else if comp != 0 {
		info = comp
	}
	if im := m.images[info]; im != nil {
		// Same address, same table: an image is loaded once and never changes.
		if f, err := m.mem.Pointer(info + arch.Addr(m.l.R2RFuncs)); err == nil && f == im.functions {
			return im, nil
		}
	}
	im := &image{info: info}
	if im.functions, err = m.mem.Pointer(info + arch.Addr(m.l.R2RFuncs)); err != nil {
		return nil, err
	}
	if im.count, err = m.mem.Uint32(info + arch.Addr(m.l.R2RCount)); err != nil {
		return nil, err
	}
	if im.count > maxFunctions {
		return nil, corrupt("%d functions in the ReadyToRun image of module %v", im.count, module)
	}
	if err := m.readHotCold(im); err != nil {
		return nil, err
	}
	if im.header, err = m.mem.Pointer(info + arch.Addr(m.l.R2RHeader)); err != nil {
		return nil, err
	}
	if err := m.readThunks(im); err != nil {
		return nil, err
	}
	if len(m.images) >= maxImages {
		clear(m.images) // they are read again
	}
	m.images[info] = im
	return im, nil
}

func (m *Map) readHotCold(im *image) (err error) {
	if m.l.R2RHot == contract.Absent || m.l.R2RHotN == contract.Absent {
		return nil
	}
	if im.hotCold, err = m.mem.Pointer(im.info + arch.Addr(m.l.R2RHot)); err != nil {
		return err
	}
	if im.hotColdPairs, err = m.mem.Uint32(im.info + arch.Addr(m.l.R2RHotN)); err != nil {
		return err
	}
	if im.hotColdPairs /= 2; im.hotColdPairs > im.count {
		return corrupt("%d cold parts of %d functions in the ReadyToRun image %v", im.hotColdPairs, im.count, im.info)
	}
	return nil
}

func (m *Map) readThunks(im *image) error {
	dir, err := m.mem.Pointer(im.info + arch.Addr(m.l.R2RThunks))
	if err != nil || dir == 0 {
		return err
	}
	rva, err := m.mem.Uint32(dir + arch.Addr(m.l.DirRVA))
	if err != nil {
		return err
	}
	size, err := m.mem.Uint32(dir + arch.Addr(m.l.DirSize))
	im.thunkLo, im.thunkEnd = uint64(rva), uint64(rva)+uint64(size)
	return err
}

func (m *Map) lookupR2R(s *section, ip arch.Addr) (Code, error) {
	im, err := m.image(s.r2rModule)
	if err != nil {
		return Code{}, err
	}
	rva := uint64(ip - s.begin)
	if rva >= im.thunkLo && rva < im.thunkEnd {
		return Code{Kind: Stub}, nil
	}
	i, f, ok, err := m.searchR2R(im, rva)
	if err != nil || !ok {
		return Code{}, err
	}
	c := Code{
		Kind: ReadyToRun, Start: s.begin + arch.Addr(f.begin), End: s.begin + arch.Addr(f.end),
		Base: s.begin, UnwindInfo: s.begin + arch.Addr(f.unwind), image: im,
	}
	hot, err := m.hotIndex(im, i)
	if err != nil {
		return Code{}, err
	}
	// Only entries of methods that have run are in the map. The method of a funclet or a part lies before the funclet
	// or part; the search ends at the entry of a method that has not run.
	budget := maxProbes
	for k := 0; k < maxFragmentsR2R && hot-k >= 0; k++ {
		e, err := m.function(im.functions + arch.Addr(hot-k)*arch.Addr(m.l.FuncSize))
		if err != nil {
			return Code{}, err
		}
		entry := s.begin + arch.Addr(e.begin)
		md, ok, err := m.hashLookup(im.info+arch.Addr(m.l.R2RMethods), uint64(entry), &budget)
		if err != nil {
			return Code{}, err
		}
		if ok {
			c.MethodDesc, c.MethodStart, c.Funclet = arch.Addr(md), entry, k != 0
			return c, nil
		}
		if m.beginsMethod(im, s.begin, hot-k) {
			return Code{}, corrupt("no method for the ReadyToRun code at %v, which begins at %v", ip, entry)
		}
	}
	return Code{}, corrupt("no method for the ReadyToRun code at %v", ip)
}

// beginsMethod reports whether a function of an image is the begin of a method, and not a funclet or a part: only whole
// methods have debug info. false: not known, as in a core dump without this part of the image.
func (m *Map) beginsMethod(im *image, base arch.Addr, function int) bool {
	rva, size, err := m.r2rSection(im, r2rDebugInfo)
	if err != nil || size == 0 {
		return false
	}
	begin := base + arch.Addr(rva)
	a := nativeArray{mem: m.mem, begin: begin, end: begin + arch.Addr(size)}
	_, ok, err := a.entry(uint32(function))
	return ok && err == nil
}

// searchR2R finds the last function that begins at or before rva.
func (m *Map) searchR2R(im *image, rva uint64) (int, runtimeFunction, bool, error) {
	lo, hi := 0, int(im.count)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		begin, err := m.mem.Uint32(im.functions + arch.Addr(mid)*arch.Addr(m.l.FuncSize) + arch.Addr(m.l.FuncBegin))
		if err != nil {
			return 0, runtimeFunction{}, false, err
		}
		if uint64(begin) > rva {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return 0, runtimeFunction{}, false, nil
	}
	f, err := m.function(im.functions + arch.Addr(lo-1)*arch.Addr(m.l.FuncSize))
	return lo - 1, f, err == nil && rva < uint64(f.end), err
}

// hotIndex leads from a cold part to its method's hot part. The map is a sorted array of pairs: the index of the
// first cold function, and the index of the hot function (readytoruninfo.cpp, ReadyToRun_MethodIsGenericMap's
// neighbour HotColdMap).
func (m *Map) hotIndex(im *image, i int) (int, error) {
	lo, hi := uint32(0), im.hotColdPairs
	for lo < hi {
		mid := (lo + hi) / 2
		cold, err := m.mem.Uint32(im.hotCold + arch.Addr(mid)*8)
		if err != nil {
			return 0, err
		}
		if int64(cold) > int64(i) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return i, nil
	}
	hot, err := m.mem.Uint32(im.hotCold + arch.Addr(lo-1)*8 + 4)
	if err != nil {
		return 0, err
	}
	if hot >= im.count {
		return 0, corrupt("cold part %d belongs to function %d of %d", i, hot, im.count)
	}
	return int(hot), nil
}

const (
	// maxBuckets bounds the runtime's hash tables.
	maxBuckets = 1 << 26
	// maxProbes bounds the buckets looked at for one instruction pointer; a sound table has the answer in the first
	// few buckets.
	maxProbes = 1 << 14
)

// hashLookup finds a value in the runtime's HashMap (hash.h, hash.cpp): open hashing over buckets of four slots. The
// first bucket's space holds the number of buckets. Values are pointers shifted right by one. The top bit of a
// bucket's first value tells that the search goes on in another bucket.
func (m *Map) hashLookup(at arch.Addr, key uint64, budget *int) (uint64, bool, error) {
	buckets, err := m.mem.Pointer(at + arch.Addr(m.l.MapBuckets))
	if err != nil || buckets == 0 {
		return 0, false, err
	}
	size, err := m.mem.Uint32(buckets)
	if err != nil {
		return 0, false, err
	}
	if size < 2 || size > maxBuckets {
		return 0, false, corrupt("a hash map of %d buckets at %v", size, at)
	}
	seed := uint32(key >> 2)
	step := 1 + (uint32(key>>5)+1)%(size-1)
	for range size {
		if *budget--; *budget < 0 {
			return 0, false, corrupt("the hash map at %v has chains of more than %d buckets", at, maxProbes)
		}
		b := buckets + arch.Addr(m.l.BucketSize)*arch.Addr(1+uint64(seed%size))
		for slot := arch.Addr(0); slot < arch.Addr(m.l.BucketSlots); slot++ {
			k, err := m.mem.Uint64(b + arch.Addr(m.l.BucketKeys) + 8*slot)
			if err != nil {
				return 0, false, err
			}
			if k == key {
				v, err := m.mem.Uint64(b + arch.Addr(m.l.BucketVals) + 8*slot)
				return v & m.l.BucketMask << 1, true, err
			}
		}
		first, err := m.mem.Uint64(b + arch.Addr(m.l.BucketVals))
		if err != nil {
			return 0, false, err
		}
		if first&^m.l.BucketMask == 0 {
			return 0, false, nil
		}
		seed += step
	}
	return 0, false, nil
}
