package amd64

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

func benchFunction(b *testing.B) (image, Function) {
	return function(unhex(b, "55 4157 4156 53 4883ec28 90 90 90 4883c428 5b 415e 415f 5d c3"),
		unhex(b, "01 0a 05 00 0a 42 06 30 05 e0 03 f0 01 50 00 00"), nil)
}

func BenchmarkCompile(b *testing.B) {
	mem, f := benchFunction(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(mem, f, f.Start+11, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkApply(b *testing.B) {
	mem, f := benchFunction(b)
	s, err := Compile(mem, f, f.Start+11, nil)
	if err != nil {
		b.Fatal(err)
	}
	st := target.Stack{Region: target.Region{Base: 0x7000, Data: make([]byte, 0x1000)}}
	c := arch.Context{Valid: arch.AMD64.NonVolatile}
	b.ReportAllocs()
	for b.Loop() {
		c.Regs[arch.RSP] = 0x7100
		if err := s.Apply(&c, &st); err != nil {
			b.Fatal(err)
		}
	}
}
