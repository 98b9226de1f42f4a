#include "textflag.h"

// clrsnap_entry is the program's first instruction, if the linker is told so (-E clrsnap_entry). It gives the main
// thread the highest nice value, unless somebody has chosen a priority or the right is missing, and goes on to the
// runtime's entry. The stack and all registers that the runtime's entry reads stay as the kernel has set them.
TEXT clrsnap_entry(SB), NOSPLIT|NOFRAME, $0
	XORL	DI, DI		// the calling thread
	MOVL	$145, AX	// sched_getscheduler
	SYSCALL
	TESTQ	AX, AX		// SCHED_NORMAL
	JNE	start
	XORL	SI, SI		// PRIO_PROCESS is 0, too
	MOVL	$140, AX	// getpriority
	SYSCALL
	CMPQ	AX, $20		// 20 minus the nice value
	JNE	start
	MOVQ	$-20, DX
	MOVL	$141, AX	// setpriority
	SYSCALL
	TESTQ	AX, AX
	JNE	start
	MOVB	$1, ·entered(SB)
start:
	JMP	_rt0_amd64_linux(SB)
