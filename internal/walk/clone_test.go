package walk

import "testing"

func TestCloneTail(t *testing.T) {
	// syscall; test rax, rax; jl +18h; je +1; ret; xor ebp, ebp; and rsp, -16
	all := code(t, "0f 05 48 85 c0 7c 18 74 01 c3 31 ed 48 83 e4 f0 4c 89 c7 ff d2")
	for _, at := range []int{cloneCall, cloneTest, cloneError, cloneSplit, cloneReturn} {
		if !isCloneTail(all[at:], at) {
			t.Errorf("not recognised at offset %d", at)
		}
		if isCloneTail(all[at+1:], at) {
			t.Errorf("recognised one byte after offset %d", at)
		}
	}
	other := code(t, "0f 05 48 3d 01 f0 ff ff 73 01 c3 48") // an ordinary system call
	if isCloneTail(other, cloneCall) {
		t.Error("an ordinary system call is taken for clone")
	}
}
