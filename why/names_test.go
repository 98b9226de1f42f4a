package why

import (
	"fmt"
	"testing"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestNameServer: threads that wait for the answer to one question are told, and threads that ask again and again are
// not.
func TestNameServer(t *testing.T) {
	look := func(id, port int, of string) snapshot.Thread {
		io := snapshot.Wait{Kind: snapshot.WaitIO,
			Target: fmt.Sprintf("%spoll udp 10.1.2.3:%d → 10.0.0.53:53", of, port+id)}
		return waiting(id, io, "libc.so.6!poll", "libc.so.6!getaddrinfo", "System.Net.Dns.GetHostAddresses",
			"Shop.Prices.Ask")
	}
	const in = "getaddrinfo: "
	ask := func(port int) []snapshot.Thread { return []snapshot.Thread{look(1, port, in), look(2, port, in)} }
	verdict(t, judgeNames(looksAt(ask(100), ask(100), ask(200))), profile.CauseRemoteCall, profile.Likely,
		"2 threads wait for the answer of a name server (10.0.0.53:53) in all looks", "Shop.Prices.Ask")
	verdict(t, judgeNames(same(3, look(1, 100, in))), profile.CauseRemoteCall, profile.Possible, "1 thread waits")
	none(t, judgeNames(looksAt(ask(100), ask(200), ask(300))))
	none(t, judgeNames(same(3, look(1, 100, ""), look(2, 100, ""))))
	runs := []snapshot.Thread{running(1, "Shop.Prices.Ask"), running(2, "Shop.Prices.Ask")}
	none(t, judgeNames(looksAt(ask(100), runs)))
}
