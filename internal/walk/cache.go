package walk

// siteCache finds sites by key: open addressing with linear probing, because a warm walk mostly
// consists of lookups.
type siteCache struct {
	slots []siteSlot // a power of two
	shift uint       // 64 - log2(len(slots))
	n     int
	load  int // n, and more for large sites
}

type siteSlot struct {
	key  uint64 // 0: empty
	site *site
}

const minSlots = 1 << 10

// siteKey makes a key of an ip and whether the ip is exact. For native code exactness matters: a
// return address may be the first address behind its function. The added bit keeps the key of ip
// 0 different from an empty slot's.
func siteKey(ip uint64, exact bool) uint64 {
	k := ip<<2 | 2
	if exact {
		k |= 1
	}
	return k
}

func (c *siteCache) index(key uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio
	return key * golden >> c.shift
}

func (c *siteCache) get(key uint64) *site {
	if c.n == 0 {
		return nil
	}
	mask := uint64(len(c.slots) - 1)
	for i := c.index(key); ; i++ {
		s := &c.slots[i&mask]
		if s.key == key {
			return s.site
		}
		if s.key == 0 {
			return nil
		}
	}
}

func (c *siteCache) put(key uint64, s *site) {
	if c.load >= maxSites {
		c.reset(nil)
	}
	if 2*(c.n+1) > len(c.slots) {
		c.reset(func(*site) bool { return true })
	}
	c.insert(key, s)
}

func (c *siteCache) insert(key uint64, s *site) {
	mask := uint64(len(c.slots) - 1)
	i := c.index(key)
	for c.slots[i&mask].key != 0 && c.slots[i&mask].key != key {
		i++
	}
	if c.slots[i&mask].key == 0 {
		c.n++
		c.load += s.load()
	}
	c.slots[i&mask] = siteSlot{key, s}
}

// load is the memory of a site, measured in ordinary sites. A step with an interpreter is larger:
// it can have a rule for every register.
func (s *site) load() int {
	if s.step != nil && s.step.Slow != nil {
		return 5
	}
	return 1
}

// reset makes a new table with the sites that keep accepts; an empty table where keep is nil.
func (c *siteCache) reset(keep func(*site) bool) {
	old := c.slots
	size := minSlots
	if keep != nil {
		for size < 4*(c.n+1) {
			size *= 2
		}
	}
	*c = siteCache{slots: make([]siteSlot, size), shift: 64}
	for s := size; s > 1; s /= 2 {
		c.shift--
	}
	for i := range old {
		if old[i].key != 0 && keep != nil && keep(old[i].site) {
			c.insert(old[i].key, old[i].site)
		}
	}
}
