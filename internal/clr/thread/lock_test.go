package thread

import (
	"encoding/binary"
	"testing"
)

func TestLockOwner(t *testing.T) {
	lock := func(words ...uint32) []byte {
		b := make([]byte, LockLen)
		for i, w := range words {
			binary.LittleEndian.PutUint32(b[4*i:], w)
		}
		return b
	}
	for _, tt := range []struct {
		name   string
		b      []byte
		object bool
		want   int
	}{
		{"monitor, held, one waits", lock(0x41, 1, 0x1000, 0x7f00, 4242, 0, 0, 17), false, 4242},
		{"monitor, free", lock(0x40, 0, 0, 0, 0, 0, 0, 17), false, 0},
		{"monitor, just left", lock(0x40, 1, 0x1000, 0x7f00, 4242, 0, 0, 17), false, 0},
		{"monitor that is a Lock", lock(0x1000, 0x7f00, 0x2000, 0x7f00, 4242, 0x101, 0, 0), false, 0},
		{"Lock, held, two wait", lock(0x1000, 0x7f00, 0x2000, 0x7f00, 4242, 0x101, 0, 0), true, 4242},
		{"Lock, free", lock(0x1000, 0x7f00, 0x2000, 0x7f00, 0, 0x100, 0, 0), true, 0},
		{"Lock that is a monitor", lock(0x41, 1, 0x1000, 0x7f00, 4242, 0, 0, 17), true, 0},
		{"an owner that no thread can be", lock(0x41, 1, 0x1000, 0x7f00, 0xffffffff, 0, 0, 17), false, 0},
		{"too short", lock(0x41, 1, 0x1000, 0x7f00, 4242)[:LockLen-1], false, 0},
	} {
		if got := LockOwner(tt.b, tt.object); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
