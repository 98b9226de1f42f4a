package display

import (
	"math"
	"testing"

	"clrsnap/profile"
)

func TestEstimatedNumber(t *testing.T) {
	for _, tt := range []struct {
		n    int64
		e    float64
		want string
	}{
		{4486, 0, "4,486"}, {4486, 0.4, "4,486"}, {4486, 812, "~4,500"}, {1601, 1600, "~2,000"}, {45, 3, "~45"},
		{45, 12, "~50"}, {1234567, 999, "~1,234,600"}, {7, 6.9, "~7"}, {0, 0, "0"},
		{5, math.Inf(1), "5"}, {5, math.NaN(), "5"},
	} {
		if got := EstimatedNumber(tt.n, tt.e); got != tt.want {
			t.Errorf("%d ± %v: %s, want %s", tt.n, tt.e, got, tt.want)
		}
	}
}

func TestEstimatedDecimal(t *testing.T) {
	for _, tt := range []struct {
		v, e     float64
		decimals int
		want     string
	}{
		{12.345, 0, 1, "12.3"}, {12.345, 0.84, 1, "12.3"}, {12.345, 1.4, 1, "~12"}, {56, 14, 1, "~60"},
		{3.6349, 0.18, 2, "~3.6"}, {3.6349, 0.04, 2, "3.63"}, {1234.5, 300, 1, "~1,200"}, {0, 0, 3, "0.000"},
	} {
		if got := EstimatedDecimal(tt.v, tt.e, tt.decimals); got != tt.want {
			t.Errorf("%v ± %v: %s, want %s", tt.v, tt.e, got, tt.want)
		}
	}
}

func TestAmountWithError(t *testing.T) {
	for _, tt := range []struct {
		m    profile.Mode
		a    profile.Amount
		e    profile.Error
		want string
	}{
		{profile.Alloc, profile.Amount{Weight: 3 << 20, Events: 4486}, profile.Error{Weight: 1 << 19, Events: 812},
			"3.0 ± 0.5 MiB in 4,500 ± 800 objects"},
		{profile.Alloc, profile.Amount{Weight: 3 << 20, Events: 4486}, profile.Error{}, "3.00 MiB in 4,486 objects"},
		{profile.Alloc, profile.Amount{Weight: 3 << 30, Events: 99}, profile.Error{Weight: 1 << 30, Events: 0.1},
			"3 ± 1 GiB in 99 objects"},
		{profile.Exception, profile.Amount{Weight: 1234}, profile.Error{Weight: 96}, "1,200 ± 100 exceptions"},
		{profile.Exception, profile.Amount{Weight: 1}, profile.Error{}, "1 exception"},
		{profile.CPU, profile.Amount{Weight: 12e9}, profile.Error{Weight: 960e6}, "12 ± 1 s"},
	} {
		if got := AmountWithError(tt.m, tt.a, tt.e); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
