package procfs

import "testing"

func TestMachineMemory(t *testing.T) {
	if n, err := MachineMemory(); err != nil || n < 16<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}
