package procfs

import (
	"os"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/target"
)

const someSmaps = "7f0a1c000000-7f0a1c021000 rw-p 00000000 00:00 0 \n" +
	"Size:                132 kB\nKernelPageSize:        4 kB\nRss:                  12 kB\nVmFlags: rd wr mr\n" +
	"7f0a1d000000-7f0a1d021000 r-xp 00001000 fd:01 131                        /lib/a b.so (deleted)\n" +
	"Rss:                   0 kB\nVmFlags: rd ex\n"

func TestEachResident(t *testing.T) {
	var got []int64
	visit := func(m *target.Mapping, resident int64) {
		got = append(got, resident)
		if resident == 0 && (m.Path != "/lib/a b.so" || !m.Deleted || m.Offset != 0x1000) {
			t.Errorf("%+v", m)
		}
	}
	if err := eachResident(strings.NewReader(someSmaps), visit); err != nil ||
		!slices.Equal(got, []int64{12 << 10, 0}) {
		t.Fatal(got, err)
	}
	for _, bad := range []string{
		"Rss: 1 kB\n", "7f-8f rw-p\n", someSmaps + "Rss: 5 kB\n",
		"7f0a1c000000-7f0a1c021000 rw-p 00000000 00:00 0 \nRss: x kB\n",
	} {
		if err := eachResident(strings.NewReader(bad), func(*target.Mapping, int64) {}); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestEachResidentOfSelf: the sum equals the status.
func TestEachResidentOfSelf(t *testing.T) {
	d, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sum := int64(0)
	if err := d.EachResident(func(_ *target.Mapping, resident int64) { sum += resident }); err != nil {
		t.Fatal(err)
	}
	s, err := d.Status()
	if err != nil {
		t.Fatal(err)
	}
	if sum < s.RSS/2 || sum > 2*s.RSS || s.Anonymous <= 0 || s.Anonymous > s.RSS {
		t.Errorf("%d bytes in mappings, %d in the status, %d of them anonymous", sum, s.RSS, s.Anonymous)
	}
}

func FuzzEachResident(f *testing.F) {
	f.Add([]byte(someSmaps))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = eachResident(strings.NewReader(string(b)), func(m *target.Mapping, resident int64) {
			if resident < 0 || m.End <= m.Start {
				t.Errorf("%+v has %d bytes", m, resident)
			}
		})
	})
}
