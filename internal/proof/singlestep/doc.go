// Package singlestep is an oracle for the walk: it lets a thread of a real .NET
// process execute one instruction at a time, keeps the true stack from the
// executed calls and returns, and compares the walk with the true stack after each
// instruction. Only tests use the package.
//
// The truth owes nothing to unwind information, to the runtime's structures or to
// an earlier walk. The truth has these rules, and no others (shadow.go):
//
//   - A call pushes a frame: the address behind the call, and the slot where the
//     CPU has put that address.
//   - A frame is popped as soon as the stack pointer lies above the frame's slot,
//     whatever moved the stack pointer: ret, a tail call's epilog, longjmp, the
//     resumption of a method after a catch. A ret to the address behind the call
//     confirms the frame.
//   - Hijacking: where the runtime has overwritten a return address, the ret goes
//     elsewhere. The frame stays until execution reaches the frame.
//   - A ret at a slot that no call has made is a jump (push and ret, retpolines).
//   - A signal handler's start pushes the interrupted frame, as the kernel has
//     saved it in the signal frame, and the return to the C library's trampoline.
//     rt_sigreturn takes both away.
//   - A switch from the signal stack to the ordinary stack without a sigreturn
//     sets the handler's frames aside; a switch back puts the frames in place
//     again (the runtime handles a fault on the stack of the fault). Where the new
//     stack pointer lies below the interrupted frame, the word there is the return
//     address of a frame built by hand.
//   - A leaf may give up its own frame without a ret and without having left yet
//     (a context is being restored). The leaf is then on its way to a frame that
//     is known only once execution gets there; until then the walk may report
//     nothing in its place.
//
// The frames already on the stack when stepping began come from a walk. Each of
// these frames counts as confirmed when a ret to the frame executes. A thread
// followed from its first instruction needs no walk.
package singlestep
