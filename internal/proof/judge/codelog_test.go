package judge

import (
	"testing"

	"clrsnap/internal/testenv"
)

// TestCodeLog feeds the judge right and wrong frames, names of unloaded code above
// all.
func TestCodeLog(t *testing.T) {
	const me, other = 7, 8
	records := []testenv.CodeRecord{
		{Time: 10, TID: me, Start: 0x1000, End: 0x1100, Name: "void [a] T::First()[QuickJitted]"},
		// over page boundaries
		{Time: 11, TID: me, Start: 0x1f80, End: 0x3080, Name: "void [a] T::Long(int32)[QuickJitted]"},
		// In the place of First.
		{Time: 20, TID: me, Start: 0x1080, End: 0x1180, Name: "void [a] T::Second()[QuickJitted]"},
		{Time: 30, TID: other, Start: 0x1080, End: 0x1090, Name: "void [a] T::Third()[QuickJitted]"},
	}
	tests := []struct {
		name       string
		method     string
		ip         uint64
		begin, end uint64
		want       verdict
	}{
		{"loaded before", "T.First", 0x1010, 12, 13, certain},
		{"over three pages", "T.Long", 0x3010, 12, 13, certain},
		{"behind its end", "T.Long", 0x3080, 12, 13, unknown},
		{"nothing there", "T.First", 0x9000, 12, 13, unknown},
		{"another name", "T.Never", 0x1010, 12, 13, wrong},
		{"neighbour's name", "T.Long", 0x1010, 12, 13, wrong},
		{"replaced while walked", "T.First", 0x1090, 15, 25, certain},
		{"loaded while walked", "T.Second", 0x1090, 15, 25, during},
		{"stale: replaced at this ip", "T.First", 0x1090, 21, 22, stale},
		{"stale: replaced at another ip", "T.First", 0x1010, 21, 22, stale},
		{"stale: replaced by two", "T.First", 0x1085, 40, 41, stale},
		{"the newest of three", "T.Third", 0x1085, 40, 41, certain},
		{"stale: the second of three", "T.Second", 0x1085, 40, 41, stale},
		{"another thread's, recorded afterwards", "T.Third", 0x1085, 25, 26, early},
		{"its own, recorded afterwards", "T.Second", 0x1090, 12, 13, wrong},
		{"recorded much later", "T.Third", 0x1085, 12, 13, wrong}, // Second came first
	}
	l := newCodeLog()
	for _, r := range records {
		l.add(r)
	}
	for _, tt := range tests {
		if got, _ := l.judge(tt.method, tt.ip, me, tt.begin, tt.end); got != tt.want {
			t.Errorf("%s: %s at %#x from %d to %d is %s, want %s", tt.name, tt.method, tt.ip, tt.begin, tt.end,
				got, tt.want)
		}
	}
	if l.reuses["other"] != 2 {
		t.Errorf("reused places: %v, want two", l.reuses)
	}
}

// TestCodeLogForgets requires that only loaded code takes memory.
func TestCodeLogForgets(t *testing.T) {
	l := newCodeLog()
	for n := uint64(1); n <= 1000; n++ {
		l.horizon = n
		l.add(testenv.CodeRecord{
			Time: n, TID: 1, Start: 0x1000, End: 0x1040, Name: "int64 [a] dynamicClass::Dyn000001(int32)[Optimized]",
		})
	}
	if n := len(l.pages[1]); n > 3 {
		t.Errorf("%d records of one place are kept", n)
	}
}
