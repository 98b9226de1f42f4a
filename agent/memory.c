/*
 * Memory of this process that may not be there: it is read by a system call, which cannot
 * fault. A sandbox can deny the call; then nothing can be read.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent.h"

/* Reads pieces, and returns how many bytes: it ends at the first piece that is not all there. */
static size_t read_pieces(const struct iovec *to, const struct iovec *from, size_t pieces) {
    static atomic_int self; /* a process that was forked runs no managed code */
    int pid = atomic_load_explicit(&self, memory_order_relaxed);
    if (!pid) atomic_store_explicit(&self, pid = getpid(), memory_order_relaxed);
    long n = syscall(SYS_process_vm_readv, pid, to, pieces, from, pieces, 0);
    return n < 0 ? 0 : (size_t)n;
}

/* Reads up to so many bytes, and returns how many: fewer at the end of what is there. */
size_t peek_most(uint64_t address, void *out, size_t size) {
    struct iovec to = {.iov_base = out, .iov_len = size};
    struct iovec from = {.iov_base = (void *)(uintptr_t)address, .iov_len = size};
    return read_pieces(&to, &from, 1);
}

bool peek_bytes(uint64_t address, void *out, size_t size) {
    return peek_most(address, out, size) == size;
}

bool peek(uint64_t address, uint64_t *value) {
    return peek_bytes(address, value, sizeof *value);
}

/* Reads pieces of memory, MOST_PEEKED at most, one behind the other into out. */
bool peek_pieces(const struct piece *pieces, size_t count, void *out) {
    struct iovec to[MOST_PEEKED], from[MOST_PEEKED];
    size_t size = 0;
    if (count > MOST_PEEKED) return false;
    for (size_t i = 0; i < count; i++) {
        to[i] = (struct iovec){.iov_base = (uint8_t *)out + size, .iov_len = pieces[i].size};
        from[i] = (struct iovec){.iov_base = (void *)(uintptr_t)pieces[i].address, .iov_len = pieces[i].size};
        size += pieces[i].size;
    }
    return !count || read_pieces(to, from, count) == size;
}
