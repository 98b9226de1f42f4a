// Package amd64 unwinds managed code on x86-64: the code that the JIT and
// crossgen2 produce, whose unwind information has the Windows form
// (UNWIND_INFO) on every operating system, Linux included.
//
// # Sources
//
// The layout of UNWIND_INFO and the numbers of the unwind codes, including the
// extension SET_FPREG_LARGE, come from src/coreclr/inc/win64unwind.h; the
// meaning of the codes comes from src/coreclr/unwinder/amd64/unwinder.cpp;
// src/coreclr/jit/unwindamd64.cpp (codes) and src/coreclr/jit/codegenxarch.cpp
// (genAllocLclFrame, genFnEpilog) show the JIT's output.
//
// # Where this unwinder is stricter or more exact than the runtime's
//
// The runtime needs its unwinder to be right at calls and at safe points; we
// stop threads anywhere and must be right at every instruction:
//
//   - An epilog that ends in a jump may load the jump's target after the last
//     pop (mov rax,imm64; jmp [rax]: genFnEpilog, when the target's cell is out
//     of reach of a 32-bit displacement).
//   - A jump out of the method counts as an epilog only when the instruction
//     before it undoes the first action of the prolog. The runtime takes any such
//     jump for an epilog; a jump that leaves with the frame in place (to a jump
//     stub, to code that takes the frame over) then unwinds wrongly.
//   - rsp may be adjusted more than once in an epilog (methods compiled by
//     on-stack replacement before .NET 7).
//
// The first instruction of an epilog needs no care: until it has run, the frame
// is still the body's frame, and the unwind codes describe the frame.
//
// # Known gaps
//
// Epilogs with APX instructions (pop2, popp) are not recognised; the runtime
// does not recognise them either, and emits none unless asked to. Unwind codes
// for vector registers are skipped: no vector register survives a call in the
// System V convention.
package amd64
