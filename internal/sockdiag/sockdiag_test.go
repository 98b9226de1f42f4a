package sockdiag

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// TestConnections: a connection of the test's own is found, and its times say which end was the last to send.
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
	began := time.Now()
	if _, err := client.Write([]byte("price?")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	all, err := Connections()
	asked := time.Since(began)
	if err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: the kernel does not answer: %v", err)
	}
	to := netip.MustParseAddrPort(l.Addr().String())
	for _, c := range all {
		if c.Remote != to {
			continue
		}
		if c.Local.String() != client.LocalAddr().String() || c.Connecting || c.Inode == 0 || c.Heard {
			t.Errorf("%+v", c)
		}
		const jiffy = 10 * time.Millisecond // at most: the kernel counts in jiffies
		if c.Sent < 15*time.Millisecond || c.Sent > asked+jiffy || c.Received < c.Sent+30*time.Millisecond {
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

// TestUnix: both ends of a connection of our own lead to each other, and the listener's name is told.
func TestUnix(t *testing.T) {
	for _, name := range []string{t.TempDir() + "/socket", "@clrsnap-test-" + t.Name()} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		client, err := net.Dial("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		from, to, listens := inode(t, client), inode(t, server), inode(t, l)
		for _, c := range []struct {
			of   uint64
			want UnixSocket
		}{{from, UnixSocket{Peer: to}}, {to, UnixSocket{Name: name, Peer: from}},
			{listens, UnixSocket{Name: name, Listening: true}}} {
			got, err := Unix(c.of)
			if err != nil {
				t.Skipf("SKIPPED, NOTHING WAS TESTED: the kernel does not answer: %v", err)
			}
			if got != c.want {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
		}
	}
	if s, err := Unix(1); err == nil {
		t.Errorf("a socket that is none: %+v", s)
	}
}

// inode returns the inode of a socket.
func inode(t *testing.T, c any) (inode uint64) {
	t.Helper()
	conn, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Control(func(fd uintptr) {
		var st syscall.Stat_t
		if err := syscall.Fstat(int(fd), &st); err != nil {
			t.Error(err)
		}
		inode = st.Ino
	})
	if err != nil {
		t.Fatal(err)
	}
	return inode
}

func FuzzParseUnix(f *testing.F) {
	f.Add(unixRequest(2)[headerLen:])
	f.Add(append(make([]byte, unixMessageLen), 6, 0, 0, 0, 'a', 'b'))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseUnix(b); ok && len(s.Name) > len(b) {
			t.Errorf("%+v", s)
		}
	})
}
