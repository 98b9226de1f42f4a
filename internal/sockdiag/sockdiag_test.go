package sockdiag

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestConnections: a connection of our own is there, and says which end was the last to send.
func TestConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	time.Sleep(50 * time.Millisecond)
	if _, err := client.Write([]byte("price?")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	all, err := Connections()
	if err != nil {
		t.Skipf("the kernel does not answer: %v", err)
	}
	to := netip.MustParseAddrPort(l.Addr().String())
	for _, c := range all {
		if c.Remote != to {
			continue
		}
		if c.Local.String() != client.LocalAddr().String() || c.Connecting || c.Inode == 0 {
			t.Errorf("%+v", c)
		}
		if c.Sent < 15*time.Millisecond || c.Sent > 10*time.Second || c.Received < c.Sent+30*time.Millisecond {
			t.Errorf("sent %v ago, received %v ago", c.Sent, c.Received)
		}
		return
	}
	t.Errorf("%v is not among %d connections", to, len(all))
}

func FuzzParse(f *testing.F) {
	f.Add(request(2))
	f.Add(make([]byte, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _, _ := parse(b)
		if len(list) > len(b)/messageLen {
			t.Errorf("%d connections in %d bytes", len(list), len(b))
		}
	})
}
