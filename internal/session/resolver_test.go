package session

import (
	"testing"

	"clrsnap/snapshot"
)

// TestResolver: a method waits for a name server if native code below the method asks the name server.
func TestResolver(t *testing.T) {
	native := func(method string) snapshot.Frame {
		return snapshot.Frame{Kind: snapshot.Native, Method: method, Module: "libc.so.6"}
	}
	managed := snapshot.Frame{Kind: snapshot.Managed, Method: "System.Net.Dns.GetHostEntry",
		Module: "System.Net.NameResolution"}
	for want, frames := range map[string][]snapshot.Frame{
		"getaddrinfo": {native("poll"), native("__res_context_send"), native("getaddrinfo"), managed},
		"getnameinfo": {native("recvmsg"), native("getnameinfo"), managed},
		"":            {native("poll"), managed, native("getaddrinfo")},
	} {
		if got := resolver(frames); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
