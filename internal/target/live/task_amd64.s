#include "textflag.h"

// func cloneTask(flags, stack, begin, run uintptr, sh *shared) (pid int)
//
// The child starts on the top of its own stack, calls begin(sh) and run(sh), two Go functions by
// the addresses of their code, and ends.
//
// After a call of assembly the compiler loads R14 from thread-local memory, just below the
// address in FS. Without thread-local memory of its own, the child would load the goroutine of
// the thread that made the child. The highest OWN bytes of the child's stack are the child's
// thread-local memory, and stay zero.
#define OWN 512
TEXT ·cloneTask(SB),NOSPLIT,$0-48
	MOVQ	flags+0(FP), DI
	MOVQ	stack+8(FP), SI
	MOVQ	begin+16(FP), R12
	MOVQ	run+24(FP), R13
	MOVQ	sh+32(FP), R9
	MOVQ	SI, R8		// the child's own thread-local memory (CLONE_SETTLS): zeros
	SUBQ	$(OWN+32), SI
	MOVQ	R12, 0(SI)
	MOVQ	R13, 8(SI)
	MOVQ	R9, 16(SI)
	XORL	DX, DX
	XORL	R10, R10
	MOVL	$56, AX		// SYS_clone
	SYSCALL
	TESTQ	AX, AX
	JEQ	child
	MOVQ	AX, pid+40(FP)
	RET
child:
	JMP	taskStart<>(SB)

// taskStart calls by Go's internal convention (abi-internal.md beside the compiler): the first
// argument is in AX, R14 has the goroutine, X15 is 0. The assembler's convention would lead
// through wrappers, which call the race detector where enabled. There is no goroutine, here or
// later: code with a goroutine would crash the task alone. TestTaskCode checks that no code needs
// a goroutine.
TEXT taskStart<>(SB),NOSPLIT|NOFRAME,$0
	XORL	R14, R14
	XORPS	X15, X15
	MOVQ	16(SP), AX
	MOVQ	0(SP), CX
	CALL	CX
	XORL	R14, R14
	XORPS	X15, X15
	MOVQ	16(SP), AX
	MOVQ	8(SP), CX
	CALL	CX
	MOVL	$231, AX	// SYS_exit_group
	XORL	DI, DI
	SYSCALL
	INT	$3

// func load(p *uint32) uint32
TEXT ·load(SB),NOSPLIT,$0-12
	MOVQ	p+0(FP), AX
	MOVL	(AX), CX
	MOVL	CX, ret+8(FP)
	RET

// func load64(p *int64) int64
TEXT ·load64(SB),NOSPLIT,$0-16
	MOVQ	p+0(FP), AX
	MOVQ	(AX), CX
	MOVQ	CX, ret+8(FP)
	RET

// func swap(p *uint32, v uint32) uint32
TEXT ·swap(SB),NOSPLIT,$0-20
	MOVQ	p+0(FP), AX
	MOVL	v+8(FP), CX
	XCHGL	CX, (AX)
	MOVL	CX, ret+16(FP)
	RET

// func swap64(p *int64, v int64) int64
TEXT ·swap64(SB),NOSPLIT,$0-24
	MOVQ	p+0(FP), AX
	MOVQ	v+8(FP), CX
	XCHGQ	CX, (AX)
	MOVQ	CX, ret+16(FP)
	RET

// func raw6(nr, a, b, c, d, e, f uintptr) (r uintptr, errno syscall.Errno)
TEXT ·raw6(SB),NOSPLIT,$0-72
	MOVQ	nr+0(FP), AX
	MOVQ	a+8(FP), DI
	MOVQ	b+16(FP), SI
	MOVQ	c+24(FP), DX
	MOVQ	d+32(FP), R10
	MOVQ	e+40(FP), R8
	MOVQ	f+48(FP), R9
	SYSCALL
	CMPQ	AX, $-4095
	JCC	failed
	MOVQ	AX, r+56(FP)
	MOVQ	$0, errno+64(FP)
	RET
failed:
	NEGQ	AX
	MOVQ	$-1, r+56(FP)
	MOVQ	AX, errno+64(FP)
	RET
