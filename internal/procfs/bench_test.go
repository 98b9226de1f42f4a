package procfs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func BenchmarkParseMaps1000(b *testing.B) {
	var s strings.Builder
	const line = "%x-%x r-xp 00001000 fd:01 131                        " +
		"/usr/share/dotnet/shared/Microsoft.NETCore.App/%d.dll\n"
	for i := range 1000 {
		start := 0x7f0000000000 + i*8192
		fmt.Fprintf(&s, line, start, start+4096, i%200)
	}
	text := []byte(s.String())
	b.ReportAllocs()
	for b.Loop() {
		if ms, err := ParseMaps(text); err != nil || len(ms) != 1000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseStatus(b *testing.B) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseStatus(text); err != nil {
			b.Fatal(err)
		}
	}
}
