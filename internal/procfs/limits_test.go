package procfs

import (
	"slices"
	"strings"
	"testing"
)

func TestParseOpenFiles(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units\n"
	for _, tt := range []struct {
		text string
		want int
		err  bool
	}{
		{head + "Max open files            1024                 524288               files\n" +
			"Max locked memory 1 2 bytes\n", 1024, false},
		{head + "Max open files            unlimited            unlimited            files\n", -1, false},
		{head, 0, true},
		{"Max open files", 0, true},
		{"Max open files 99999999999999999999 1 files", 0, true},
	} {
		if n, err := parseOpenFiles([]byte(tt.text)); n != tt.want || (err != nil) != tt.err {
			t.Errorf("%q: %d, %v", tt.text, n, err)
		}
	}
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if n, err := self.OpenFiles(); err != nil || n == 0 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestParseCgroups(t *testing.T) {
	got := parseCgroups([]byte(
		"4:memory:/docker/1234\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/system.slice/shop:1.service\nbad\n5:x:rel\n"))
	var text []string
	for _, c := range got {
		text = append(text, strings.Join(c.Controllers, "+")+" "+c.Path)
	}
	want := []string{"memory /docker/1234", "cpu+cpuacct /", "name=systemd /x", " /system.slice/shop:1.service"}
	if !slices.Equal(text, want) {
		t.Errorf("%q", text)
	}
	if got[3].Controllers != nil {
		t.Error("version 2 has no list of controllers")
	}
}

func FuzzCgroups(f *testing.F) {
	f.Add([]byte("4:memory:/docker/1234\n0::/\n"))
	f.Add([]byte("Max open files 12 34 files\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range parseCgroups(b) {
			if !strings.HasPrefix(c.Path, "/") {
				t.Errorf("%q", c.Path)
			}
		}
		if n, err := parseOpenFiles(b); err != nil && n != 0 || n < -1 {
			t.Errorf("%d, %v", n, err)
		}
	})
}
