/*
 * Memory of this process that may not be there: it is read by a system call, which cannot
 * fault. A sandbox can deny the call; then nothing can be read.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent.h"

static bool read_pieces(const struct iovec *to, const struct iovec *from, size_t pieces, size_t size) {
    return syscall(SYS_process_vm_readv, getpid(), to, pieces, from, pieces, 0) == (long)size;
}

bool peek_bytes(uint64_t address, void *out, size_t size) {
    struct iovec to = {.iov_base = out, .iov_len = size};
    struct iovec from = {.iov_base = (void *)(uintptr_t)address, .iov_len = size};
    return read_pieces(&to, &from, 1, size);
}

bool peek(uint64_t address, uint64_t *value) {
    return peek_bytes(address, value, sizeof *value);
}

/* Reads the values of words, MOST_PEEKED at most, by their addresses without the lowest bits. */
bool peek_words(struct chain_word *words, size_t count) {
    struct iovec to[MOST_PEEKED], from[MOST_PEEKED];
    if (count > MOST_PEEKED) return false;
    for (size_t i = 0; i < count; i++) {
        void *at = (void *)(uintptr_t)(words[i].address & ~(uint64_t)CHAIN_KINDS);
        to[i] = (struct iovec){.iov_base = &words[i].value, .iov_len = sizeof words[i].value};
        from[i] = (struct iovec){.iov_base = at, .iov_len = sizeof words[i].value};
    }
    return !count || read_pieces(to, from, count, count * sizeof words->value);
}
