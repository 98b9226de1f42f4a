package confine

import "golang.org/x/sys/unix"

// fstatat has a name of its own on each machine.
const fstatat = unix.SYS_NEWFSTATAT

// ofMachine are system calls that other machines lack. A new thread of Go's gets its thread-local memory by
// ARCH_PRCTL.
var ofMachine = []uint32{unix.SYS_ARCH_PRCTL, unix.SYS_POLL, unix.SYS_EPOLL_WAIT}
