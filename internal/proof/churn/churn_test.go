package churn

import (
	"cmp"
	"context"
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestChurn holds clrsnap's claims about locks against the program's own journal.
func TestChurn(t *testing.T) {
	layer.Proof(t)
	testenv.EachRuntime(t, testChurn)
}

var lasting = flag.Duration("lasting", 0, "how long to look at each runtime")

// tally counts claims.
type tally struct {
	certain, owners, without, holds, joins, atOnce int
	uncertain, uncertainHolds                      int
	wrong                                          int
}

type trial struct {
	t     *testing.T
	p     *clrsnap.Process
	j     *journal
	n     tally
	after []group
}

// group are claims that are true at the same time.
type group struct {
	claims []claim
	once   bool // the claims are of one instant
}

func testChurn(t *testing.T, runtime string) {
	path := filepath.Join(t.TempDir(), "journal")
	a := testenv.Start(t, "churn", testenv.Options{
		Runtime: runtime, Args: []string{"--journal", path, "--max-seconds", "7200"},
	})
	c := trial{t: t, p: livetest.Open(t, a, clrsnap.Options{}), j: openJournal(t, path)}
	n := &c.n
	d := cmp.Or(*lasting, layer.Size(1500*time.Millisecond, 20*time.Minute))
	few := func() bool { return n.owners < 10 || n.holds < 10 || n.joins < 5 }
	goOn := livetest.GoOn(d, few)
	for round := 0; goOn() && !t.Failed(); round++ {
		c.round(round)
		if err := c.judge(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
	if err := c.judge(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d waits certain (%d with an owner, %d without their object, %d joins, %d of one instant), %d uncertain; "+
		"%d locks held certainly, %d uncertain; %d wrong",
		n.certain, n.owners, n.without, n.joins, n.atOnce, n.uncertain, n.holds, n.uncertainHolds, n.wrong)
	if few() || n.certain < n.uncertain/2 {
		t.Error("too little is certain")
	}
	livetest.EndsWell(t, a)
}

// round looks at all threads: at once, in one snapshot, in a snapshot that proves deadlocks, or in a
// snapshot for each thread.
func (c *trial) round(n int) {
	ctx := context.Background()
	whole := []func(context.Context, clrsnap.Filter) (*snapshot.Snapshot, error){
		c.p.SnapshotAtOnce, c.p.SnapshotAll, c.p.SnapshotWaits,
	}
	if n %= len(whole) + 2; n < len(whole) {
		from := now()
		snap, err := whole[n](ctx, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		c.take(snap, span{from, now()}, n == 0)
		if d := snap.WaitGraph().Deadlocks; len(d) > 0 {
			c.n.wrong++
			c.t.Errorf("there is no deadlock: %+v", d)
		}
		return
	}
	list, err := c.p.Threads()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, th := range list {
		if th.ID == 0 {
			continue
		}
		from := now()
		snap, err := c.p.SnapshotAll(ctx, func(o *clrsnap.Thread) bool { return o.OSThreadID == th.OSThreadID })
		if err != nil {
			c.t.Fatal(err)
		}
		c.take(snap, span{from, now()}, false)
	}
}

// take notes the claims of a snapshot.
func (c *trial) take(snap *snapshot.Snapshot, when span, once bool) {
	g := group{once: once}
	for i := range snap.Threads {
		th := &snap.Threads[i]
		if strings.HasPrefix(th.Name, "lane-") {
			continue // lanes keep no journal
		}
		if w := th.Wait; w != nil && judged(w) {
			if c.waits(w, once); w.Certain {
				g.claims = append(g.claims, claim{th.OSThreadID, false, *w, when})
			}
		}
		for _, h := range th.Holds {
			if !judged(&h) {
				continue
			}
			if !h.Certain {
				c.n.uncertainHolds++
				continue
			}
			c.n.holds++
			g.claims = append(g.claims, claim{th.OSThreadID, true, h, when})
		}
	}
	c.after = append(c.after, g)
}

func (c *trial) waits(w *snapshot.Wait, once bool) {
	n := &c.n
	if !w.Certain {
		n.uncertain++
		return
	}
	n.certain++
	switch {
	case w.Kind == snapshot.ThreadJoin:
		n.joins++
	case w.Object == 0:
		n.without++
	case w.Owner != nil:
		n.owners++
		if once {
			n.atOnce++
		}
	}
}

// judge compares the claims with the journal.
func (c *trial) judge() error {
	if err := c.j.catchUp(); err != nil {
		return err
	}
	for _, g := range c.after {
		all := times{{0, never}}
		for i := range g.claims {
			when, wrong := c.j.possible(&g.claims[i])
			if len(when) == 0 {
				c.n.wrong++
				c.t.Errorf("%v: %s", &g.claims[i], wrong)
			}
			if both := all.and(when); len(both) > 0 || len(when) == 0 {
				all = both
			} else if g.once {
				c.n.wrong++
				c.t.Errorf("not at the same instant as the others, in %v: %v", all, &g.claims[i])
			}
		}
	}
	c.after = c.after[:0]
	c.j.forget(now() - int64(5*time.Second))
	return nil
}
