/*
 * What depends on the CPU architecture.
 *
 * These are the offsets, in the CONTEXT that the runtime passes to
 * StackSnapshotCallback, of the registers that the agent reports. On AMD64 the size
 * of a CONTEXT grows with the CPU's vector registers, but these offsets do not change
 * (src/coreclr/pal/inc/pal.h). On other architectures no registers are reported.
 */
#ifndef CLRSNAP_ARCH_H
#define CLRSNAP_ARCH_H

#include <string.h>

#include "protocol.h"

/* Otherwise GCC calls its own library for atomic operations. */
#if defined(__aarch64__)
#pragma GCC target("no-outline-atomics")
#endif

#if defined(__x86_64__)

enum {
    CONTEXT_RBX = 0x90,
    CONTEXT_RSP = 0x98,
    CONTEXT_RBP = 0xa0,
    CONTEXT_R12 = 0xd8,
    CONTEXT_R13 = 0xe0,
    CONTEXT_R14 = 0xe8,
    CONTEXT_R15 = 0xf0,
    CONTEXT_RIP = 0xf8,
    CONTEXT_NEEDED = 0x100
};

static inline uint64_t context_register(const uint8_t *context, size_t offset) {
    uint64_t v;
    memcpy(&v, context + offset, sizeof v);
    return v;
}

static inline void copy_registers(struct frame_record *f, const uint8_t *context, uint32_t size) {
    if (!context || size < CONTEXT_NEEDED) return;
    f->context_ip = context_register(context, CONTEXT_RIP);
    f->sp = context_register(context, CONTEXT_RSP);
    f->bp = context_register(context, CONTEXT_RBP);
    f->bx = context_register(context, CONTEXT_RBX);
    f->r12 = context_register(context, CONTEXT_R12);
    f->r13 = context_register(context, CONTEXT_R13);
    f->r14 = context_register(context, CONTEXT_R14);
    f->r15 = context_register(context, CONTEXT_R15);
}

#else

static inline void copy_registers(struct frame_record *f, const uint8_t *context, uint32_t size) {
    (void)f;
    (void)context;
    (void)size;
}

#endif
#endif
