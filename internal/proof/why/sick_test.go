package why

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// A disease is a fault of the program "shop", or a harm done to the program.
type disease struct {
	name   string   // the name for shop --sick, if sick is empty
	sick   string   // another disease of the program in the meantime
	kind   string   // of the program "oddities" instead: the service makes its own load
	causes []string // possible verdicts; one is enough
	own    []string // the code at fault: a regular expression for each required name
	beside []string // other true verdicts

	breaksOut string        // the program's counter for the outbreak, if the outbreak takes a while
	after     time.Duration // the age of the program at the first look, if 2 s are too few

	starves  string // the clients without an answer
	locks    int    // the exit status of "locks"
	noFigure bool   // there is nothing to count
	mute     bool   // the runtime does not answer, or is not asked
	needs    string // the only way that finds the disease: "agent"

	options func(t *testing.T) testenv.Options
	harm    func(t *testing.T, a *testenv.App)
	short   bool // tried in the short form, too
}

var diseases = []*disease{
	{name: "convoy", causes: []string{"lock-contention"},
		own: []string{`OrderJournal\.(Append|Replicate)`}, short: true},
	{name: "deadlock", causes: []string{"deadlock"}, locks: 3, starves: "sales", short: true,
		own: []string{`StockService\.(TryReserve|Reserve)`, `StockService\.(ServeBackorders|Restock)`}},
	{name: "sync-over-async", causes: []string{"thread-pool-starvation"},
		own: []string{`TenantMiddleware\.InvokeAsync`}},
	{name: "lock-semaphore", causes: []string{"deadlock"}, starves: "refunds", short: true,
		own: []string{`PaymentService\.WithdrawPermitted|PaymentLedger\.(Exclusive|Book)`,
			`PaymentService\.CaptureAsync`, `a permit of which \S.* most likely holds`}},
	{name: "regex", causes: []string{"cpu"}, starves: "reviewers", own: []string{`SpamFilter\.LooksWritten`}},
	{name: "exceptions", causes: []string{"exceptions"}, needs: "agent",
		own: []string{`FormatException`, `PriceParser\.ParseAmount`}},
	{name: "buffers", causes: []string{"gc-pressure"}, needs: "agent", own: []string{`ImageStore\.Load`,
		`Byte\[\]|byte\[\]`}},
	{name: "remote", causes: []string{"remote-call"}, own: []string{`SupplierClient\.Get`}, starves: "buyers",
		options: withSupplier, short: true},
	{name: "remote-async", causes: []string{"remote-call"}, own: []string{`SupplierClient\.GetAsync`},
		starves: "buyers",
		options: withSupplier},
	{name: "event-leak", causes: []string{"heap-growth"}, own: []string{`PriceAlert|AlertService\.Watch`}},
	{name: "finalizer", causes: []string{"finalizer"}, own: []string{`DocumentLease\.(GiveBack|Finalize)`},
		breaksOut: "returns", short: true},
	{name: "spin", causes: []string{"cpu"}, own: []string{`CacheWarmer\.WaitUntilLoaded`}},
	{name: "descriptors", causes: []string{"descriptors"}, beside: []string{"exceptions"}, harm: fewDescriptors},
	{name: "suspension", causes: []string{"suspension"}, own: []string{`Scanner\.ReadPage`},
		starves: "visitors", mute: true},
	{name: "stopped", sick: "none", causes: []string{"stopped"}, starves: "visitors", mute: true,
		noFigure: true, harm: stop},
	{name: "debugger", sick: "none", causes: []string{"debugger"}, starves: "visitors", mute: true,
		noFigure: true, harm: debug, locks: 1}, // some threads cannot be stopped to be looked at
	{name: "throttled", sick: "none", causes: []string{"throttled"}, harm: throttle},
	{name: "memory-pressure", sick: "crammed", causes: []string{"memory-pressure"}, needs: "agent",
		options: littleHeap},
	{name: "leases", causes: []string{"lock-contention"}, breaksOut: "empty", starves: "pickers", short: true,
		own: []string{`WarehousePool\.RentAsync`, `WarehousePool\.Return`, `WarehouseService\.AvailableAsync`}},
	{name: "replies", causes: []string{"stalled"}, breaksOut: "unreadable",
		own: []string{`CourierLink\.waiting`, `CourierLink\.ReadAsync`, `FormatException`}},
	{name: "yielding", causes: []string{"cpu"}, starves: "searchers", own: []string{`SearchIndex\.FindAsync`}},
	{name: "threads", causes: []string{"stalled"}, own: []string{`DeliveryService\.Await`}, short: true},
	// Services that nobody had looked at before.
	{name: "lazy", kind: "lazy", causes: []string{"deadlock"}, locks: 3, own: []string{`Rates\.Load`, `Rates\.Quote`}},
	{name: "ticks", kind: "ticks", causes: []string{"lock-contention", "thread-pool-starvation"},
		own: []string{`Poller\.(Tick|Query)`}},
	{name: "broadcast", kind: "broadcast", causes: []string{"blocked-io"}, own: []string{`Feed\.Broadcast`}},
	{name: "imports", kind: "imports", causes: []string{"thread-pool-starvation"}, own: []string{`Importer\.Import`}},
	{name: "collect", kind: "collect", causes: []string{"gc-pressure"}, needs: "agent",
		own: []string{`Thumbnails\.Scale`, `induced`}},
	{name: "audit", kind: "audit", causes: []string{"stalled"}, after: 5 * time.Second,
		own: []string{`Audit\.Record`, `Audit\.trail`}},
	{name: "undo", kind: "undo", causes: []string{"heap-growth"}, after: 30 * time.Second,
		own: []string{`Drawing\+Step`, `Drawing\.last`}},
	{name: "cursors", kind: "cursors", causes: []string{"lock-contention"}, after: 25 * time.Second,
		own: []string{`Archive\.cursors`, `Archive\.Rows`}},
	{name: "inline", kind: "inline", causes: []string{"stalled"}, after: 5 * time.Second,
		own: []string{`CacheClient\.`, `cache-reader`}},
	{name: "lines", kind: "lines", causes: []string{"remote-call"}, after: 5 * time.Second,
		own: []string{`Weather\.Forecast`}},
	{name: "memory-limit", sick: "crammed", causes: []string{"memory-pressure"}, mute: true, // no room for the agent
		options: littleMemory},
}

// try has the disease break out, and looks at the program in all ways.
func (d *disease) try(t *testing.T, c command, runtime string) {
	a := d.start(t, runtime)
	var l load
	if d.kind == "" {
		l = startLoad(t, a)
	}
	if d.harm != nil {
		d.harm(t, a)
	}
	d.breakOut(t, a)
	ways := layer.Size([]way{plain}, []way{plain, noAgent, again})
	if d.needs == "agent" {
		ways = []way{plain, again}
	}
	got := l.during(func() {
		for _, w := range ways {
			d.judge(t, w, c.why(t, a.PID, w, d.mute))
		}
	})
	t.Logf("%s: answers meanwhile: %v", d.name, got)
	if d.starves != "" && got[d.starves] != 0 {
		t.Errorf("%s: it is not sick: %d answers to %s", d.name, got[d.starves], d.starves)
	}
	if status := c.locks(t, a.PID); status != d.locks {
		t.Errorf("%s: the exit status of locks is %d instead of %d", d.name, status, d.locks)
	}
}

// breakOut waits until the disease has broken out.
func (d *disease) breakOut(t *testing.T, a *testenv.App) {
	t.Helper()
	time.Sleep(max(2*time.Second, d.after))
	has := func(line string) bool { return strings.HasPrefix(line, d.breaksOut+" ") }
	for start := time.Now(); d.breaksOut != "" && !slices.ContainsFunc(a.Ask("counts"), has); {
		if time.Sleep(100 * time.Millisecond); time.Since(start) > tooLong {
			t.Fatalf("%s: it does not break out", d.name)
		}
	}
}

func (d *disease) start(t *testing.T, runtime string) *testenv.App {
	t.Helper()
	var o testenv.Options
	if d.options != nil {
		o = d.options(t)
	}
	if d.kind != "" {
		o.Runtime, o.Args = runtime, append(o.Args, "--kind", d.kind)
		return testenv.Start(t, "oddities", o)
	}
	sick := d.sick
	if sick == "" {
		sick = d.name
	}
	o.Runtime, o.Args = runtime, append(o.Args, "--sick", sick)
	return testenv.Start(t, "shop", o)
}

func withSupplier(t *testing.T) testenv.Options {
	return testenv.Options{Args: []string{"--supplier", silentServer(t)}}
}

// littleHeap limits the heap of a program to 120 MB.
func littleHeap(*testing.T) testenv.Options {
	const limit = 120 << 20
	return testenv.Options{Env: []string{"DOTNET_GCHeapHardLimit=0x" + strconv.FormatInt(limit, 16)}}
}
