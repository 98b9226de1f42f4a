package link

import (
	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/session"
)

// Chains tells an agent which memory to copy of the objects that lead from async methods to their awaiters, and reads
// the copies. Chains tells the agent of code and of classes on their first occurrence, so the awaiter is known from
// the second or third event of a method on.
type Chains struct {
	*awaits.CopiedAwaits
	conn      *agent.Conn
	told      map[arch.Addr]bool          // instruction pointers and MethodTables; true: the agent has a rule
	following bool                        // the agent knows that chains are wanted
	contexts  map[awaits.ContextWord]bool // the contexts that the agent has been told of
}

// maxTold bounds the remembered keys: more than the agent has room for.
const maxTold = 1 << 13

// Chains returns the Chains of a process; nil: the runtime is not known well enough.
func (l *Link) Chains(p *session.Process) *Chains {
	copied, err := p.CopiedAwaits()
	if err != nil {
		return nil
	}
	return &Chains{
		CopiedAwaits: copied, conn: l.conn, told: map[arch.Addr]bool{}, contexts: map[awaits.ContextWord]bool{},
	}
}

// Code tells the agent of code that runs an async method. The code must stay at its address.
func (c *Chains) Code(ip arch.Addr, code *awaits.Code) {
	if !c.first(ip) {
		return
	}
	a, ok := c.Argument(code)
	if !ok {
		return
	}
	rule := agent.ChainRule{
		Key: uint64(ip), OnStack: a.Place.OnStack, Offset: a.Place.Offset, Object: a.Object, Resumes: a.Resumes,
		Field: a.Field, Words: a.Words.Offsets, Follow: a.Words.Follow,
	}
	if rule.Register, ok = registers[a.Place.Register]; !ok {
		return
	}
	if c.told[ip] = c.conn.AddChainRule(&rule); c.told[ip] && !c.following {
		if moving, base, ok := c.Layout(); ok {
			c.conn.FollowChains(uint64(moving), base)
			c.following = true
		}
	}
}

// registers are the registers that a callee preserves, by their numbers in debug info (AMD64).
var registers = map[uint8]agent.ChainRegister{
	3: agent.ChainRBX, 4: agent.ChainSP, 5: agent.ChainRBP,
	12: agent.ChainR12, 13: agent.ChainR13, 14: agent.ChainR14, 15: agent.ChainR15,
}

// Read takes the agent's copies for a record, and tells the agent of new classes. Read returns the argument of each
// frame with an argument.
func (c *Chains) Read(r *agent.Record) map[int]arch.Addr {
	c.Clear()
	if r.Chain == nil {
		return nil
	}
	arguments := map[int]arch.Addr{}
	for _, a := range r.Chain.Arguments {
		arguments[a.Frame] = arch.Addr(a.Value)
	}
	for _, w := range r.Chain.Words {
		c.Add(arch.Addr(w.Address), w.Value)
		if !w.Table {
			continue
		}
		if table := c.Table(w.Value); c.first(table) {
			c.tell(table)
		}
	}
	return arguments
}

// tell tells the agent of a class.
func (c *Chains) tell(table arch.Addr) {
	words, all, err := c.Words(table)
	if err != nil {
		delete(c.told, table) // the class may be known later
		return
	}
	add := func(class arch.Addr, derived bool, offsets []int32, follow uint16) {
		c.told[class] = c.conn.AddChainRule(&agent.ChainRule{
			Key: uint64(class), Derived: derived, Words: offsets, Follow: follow,
		})
	}
	for class, w := range all {
		if class == table || c.first(class) {
			add(class, true, w.Offsets, w.Follow)
		}
	}
	if _, ok := all[table]; !ok {
		add(table, false, words.Offsets, words.Follow)
	}
}

// Awaiting reads the awaiters of the async method of a site. From now on, the agent also copies memory that was
// missing.
func (c *Chains) Awaiting(site *awaits.Site) (awaits.Chain, error) {
	chain, err := c.CopiedAwaits.Awaiting(site)
	for _, w := range c.Lacks() {
		if !c.contexts[w] && c.told[w.Table] && len(c.contexts) < maxTold {
			c.contexts[w] = true
			c.conn.ExtendChainRule(uint64(w.Table), int32(w.Offset), w.Object)
		}
	}
	return chain, err
}

// Follows reports whether the agent has been told to copy the objects behind some code.
func (c *Chains) Follows(ip arch.Addr) bool { return c.told[ip] }

// first reports whether the agent has not been told of key yet.
func (c *Chains) first(key arch.Addr) bool {
	if _, ok := c.told[key]; ok || len(c.told) >= maxTold {
		return false
	}
	c.told[key] = false
	return true
}
