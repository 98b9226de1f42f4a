/*
 * What agent and reader say to each other over a Unix stream socket. README.md
 * has the conversation; internal/agent in the Go module is the other side.
 *
 * Every message is a header and a payload. Numbers are little-endian, structures
 * have no padding. A reader that asks for anything unknown is hung up on.
 */
#ifndef CLRSNAP_PROTOCOL_H
#define CLRSNAP_PROTOCOL_H

#include <stdint.h>

#define PROTOCOL_VERSION 1u

enum message {
    /* from the agent */
    MSG_HELLO = 1,
    MSG_WALKED = 2,
    MSG_RESUMED = 3,
    MSG_DETACHED = 4, /* without payload; the last message */
    /* from the reader */
    MSG_WALK = 0x101,
    MSG_RESUME = 0x102, /* without payload */
    MSG_DETACH = 0x103, /* without payload */
};

struct header {
    uint32_t type;
    uint32_t length; /* of the payload, in bytes */
};

struct hello {
    uint32_t version;
    uint32_t pid; /* as the agent's process sees itself */
    uint32_t attached; /* 1: attached to a running process; 0: loaded at its start */
    uint32_t hold_limit_ms; /* longest suspension that may be asked for */
};

/* MSG_WALK: suspend the runtime, unless it is already, and walk all its threads. */
struct walk_request {
    uint32_t hold_ms; /* how long the runtime may stay suspended without MSG_RESUME */
};

/* MSG_WALKED: this, then the threads, then the frames of all threads. */
struct walk_reply {
    int32_t result; /* of SuspendRuntime or EnumThreads; if not 0, nothing follows */
    uint32_t threads;
    uint32_t frames;
    uint32_t full; /* 1: threads or frames are missing, because the buffers are full */
    uint64_t suspend_ns; /* what SuspendRuntime took; 0 if the runtime was suspended already */
    uint64_t walk_ns; /* what all walks took */
};

struct thread_record {
    uint64_t thread; /* ThreadID */
    uint32_t os_id;
    int32_t result; /* of DoStackSnapshot */
    uint32_t frames; /* how many of the frames are this thread's; they are in order */
    uint32_t context_size; /* as given to the callback; 0 without callbacks */
};

/* One call of StackSnapshotCallback. Registers are 0 where none were given. */
struct frame_record {
    uint64_t function; /* 0: a run of unmanaged frames */
    uint64_t ip; /* as the callback was told */
    uint64_t context_ip, sp, bp, bx, r12, r13, r14, r15; /* of its register context */
};

/* MSG_RESUMED */
struct resume_reply {
    int32_t result; /* of ResumeRuntime */
    uint32_t expired; /* 1: the agent had resumed the runtime by itself, because time was up */
};

#endif
