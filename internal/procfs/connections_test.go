package procfs

import "testing"

func TestParseConnection(t *testing.T) {
	for line, want := range map[string]struct {
		inode uint64
		c     string
	}{
		"   1: 0100007F:1F90 0200000A:D431 01 00000000:00000000 00:00000000 00000000  1000        0 " +
			"173886 1 0000 20 4 30": {
			173886, "127.0.0.1:8080 10.0.0.2:54321 established"},
		"   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0000 100 0": {
			99, "0.0.0.0:80 0.0.0.0:0 listening"},
		"   2: 00000000000000000000000001000000:1F90 0000000000000000FFFF00000100007F:D431 08 0:0 0:0 0 0 0 7 1": {
			7, "[::1]:8080 127.0.0.1:54321 close-wait"},
	} {
		inode, c, ok := parseConnection([]byte(line), "tcp")
		if got := c.Local.String() + " " + c.Remote.String() + " " + c.State; !ok || inode != want.inode ||
			got != want.c {
			t.Errorf("%q: %d %s, %v", line, inode, got, ok)
		}
	}
	for _, line := range []string{
		"", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
		"   1: 0100007F:1F90 0200000A:D431 01 0:0 0:0 0 0 0 0",      // no inode
		"   1: 0100007F:1F90 0200000A 01 0:0 0:0 0 0 0 1",           // no port
		"   1: 0100007:1F90 0200000A:D431 01 0:0 0:0 0 0 0 1",       // a digit is missing
		"   1: 0100007F:11F90 0200000A:D431 01 0:0 0:0 0 0 0 1",     // no such port
		"   1: 0100007F:1F90 0200000A:D431 Z 0:0 0:0 0 0 0 1",       // no state
		"   1: 0100007G:1F90 0200000A:D431 01 0:0 0:0 0 0 0 1",      // no digit
		"   1: 0100007F:1F90 0200000A:D431 01 0:0 0:0 0 0 0 socket", // no number
	} {
		if _, c, ok := parseConnection([]byte(line), "tcp"); ok {
			t.Errorf("%q: %+v", line, c)
		}
	}
}

func FuzzParseConnection(f *testing.F) {
	f.Add([]byte("   1: 0100007F:1F90 0200000A:D431 01 00000000:00000000 00:00000000 00000000  1000        0 173886 1"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if _, c, ok := parseConnection(line, "tcp"); ok && (!c.Local.IsValid() || !c.Remote.IsValid()) {
			t.Errorf("%+v", c)
		}
	})
}
