// Package singlestep is an oracle for the walk: it lets a thread of a real .NET
// process execute one instruction at a time, keeps the true stack from the calls
// and returns that it sees execute, and compares the walk with it after each of
// them. Nothing but tests uses it.
//
// The truth owes nothing to unwind information, to the runtime's structures or
// to an earlier walk. It has these rules, and no others (shadow.go):
//
//   - A call pushes a frame: the address behind it, and the slot where the
//     CPU has put that address.
//   - A frame is popped as soon as the stack pointer lies above its slot, whatever
//     moved it: ret, a tail call's epilog, longjmp, the resumption of a method
//     after a catch. A ret that goes where the call came from confirms the frame.
//   - Hijacking: where the runtime has overwritten a return address, the ret goes
//     elsewhere. The frame stays until execution comes to it.
//   - A ret at a slot that no call has made is a jump (push and ret, retpolines).
//   - A signal handler's start pushes the interrupted frame, as the kernel has
//     saved it in the signal frame, and the return to the C library's trampoline.
//     rt_sigreturn takes both away.
//   - A switch from the signal stack to the ordinary one that is no sigreturn sets
//     the frames of the handler aside; a switch back puts them in place again
//     (the runtime handles faults on the stack that they happened on). Where the
//     new stack pointer lies below the interrupted frame, the word there is the
//     return address of a frame that was built by hand.
//   - A leaf that gives up its own frame without a ret and without having left yet
//     (a context is being restored) is on its way to a frame that is known only
//     once execution gets there; until then nothing may be reported in its place.
//
// What was on the stack when stepping began comes from a walk. Each of these
// frames counts as confirmed when a ret executes that goes to it. A thread that
// is followed from its first instruction needs no such walk.
package singlestep
