package record

import (
	"runtime"
	"strings"
	"testing"
)

// TestAloneNeedsCPUs: a recording that could keep Go's only CPU is refused.
func TestAloneNeedsCPUs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	o := Options{Alone: true}
	if err := o.complete(); err == nil || !strings.Contains(err.Error(), "GOMAXPROCS(2)") {
		t.Errorf("with one CPU for Go: %v", err)
	}
	runtime.GOMAXPROCS(2)
	if err := o.complete(); err != nil {
		t.Error(err)
	}
}
