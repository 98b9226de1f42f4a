/*
 * The protocol of agent and reader over a Unix stream socket. README.md describes
 * it; internal/agent in the Go module is the other side.
 *
 * Every message is a header and a payload. Numbers are little-endian, structures
 * have no padding. The agent hangs up on a reader that sends anything unknown.
 */
#ifndef CLRSNAP_PROTOCOL_H
#define CLRSNAP_PROTOCOL_H

#include <stdint.h>

#define PROTOCOL_VERSION 9u

enum message {
    /* from the agent */
    MSG_HELLO = 1,
    MSG_WALKED = 2,
    MSG_RESUMED = 3,
    MSG_DETACHED = 4, /* without payload; the last message */
    MSG_BEGUN = 5,
    MSG_COLLECTED = 6,
    /* from the reader */
    MSG_BEGIN = 0x100, /* the answer to MSG_HELLO; comes with the ring's descriptor if events are wanted */
    MSG_WALK = 0x101,
    MSG_RESUME = 0x102, /* without payload */
    MSG_DETACH = 0x103, /* without payload */
    MSG_FREE = 0x104, /* slots of handles to be destroyed: MAX_FREED numbers of 32 bits at most; has no answer */
    MSG_COLLECT = 0x105, /* without payload: a full, blocking garbage collection */
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
    uint64_t ip; /* as the callback got it */
    uint64_t context_ip, sp, bp, bx, r12, r13, r14, r15; /* of its register context */
};

/* MSG_RESUMED */
struct resume_reply {
    int32_t result; /* of ResumeRuntime */
    uint32_t expired; /* 1: the agent had resumed the runtime by itself, because the time was over */
};

#define MAX_FREED 1024u

/* MSG_COLLECTED */
struct collect_reply {
    int32_t result; /* of ForceGC */
    uint32_t reserved;
    uint64_t took_ns;
};

/*
 * Notifications
 *
 * MSG_BEGIN says which events are wanted. If any are, a file descriptor comes with
 * it (SCM_RIGHTS): a memfd that can no longer change its size (F_SEAL_SHRINK and
 * F_SEAL_GROW), so that neither side can take the memory from the other. It holds
 * one struct ring_control in a page of its own, then CHAIN_RULES of struct chain_rule,
 * then `capacity` bytes of records.
 */
enum event_bits {
    WANT_ALLOC = 1u << 0,
    WANT_EXCEPTION = 1u << 1,
    WANT_CONTENTION = 1u << 2,
    WANT_THREAD = 1u << 3,
    WANT_GC = 1u << 4,
    WANT_WAIT = 1u << 5, /* .NET 9 and later; before, begin_reply.events lacks it */
};

enum begin_flags {
    BEGIN_EVERY_OBJECT = 1u << 0, /* ObjectAllocated instead of the runtime's own sampling; at start-up only */
    BEGIN_REGISTERS = 1u << 1, /* frames are struct frame_record instead of struct short_frame */
    /* For tests: after a record with a stack its thread waits, see ring_control.released; one at a time. */
    BEGIN_HOLD = 1u << 2,
    BEGIN_MESSAGES = 1u << 3, /* exceptions come with their messages */
    /* Published allocations come with weak handles of their objects; the start and the end of garbage collections
     * are published as with WANT_GC. Needs WANT_ALLOC. */
    BEGIN_HANDLES = 1u << 4,
};

struct begin_request {
    uint32_t events; /* 0: none, and no descriptor */
    uint32_t flags;
    uint64_t alloc_bytes; /* one allocation is published for so many bytes allocated, on average; at least 1 */
    uint64_t exception_every; /* one exception in so many is published, on average; at least 1 */
    uint64_t contention_ns; /* shorter waits for locks are not published */
    uint64_t wait_ns; /* shorter waits are not published, of EVENT_WAITED */
    uint32_t max_frames; /* of one stack, MAX_FRAMES_LIMIT at most */
    uint32_t hold_ms; /* how long a held thread waits at most */
    uint32_t destroy_ms; /* how long ThreadDestroyed waits for a walk from outside at most */
    uint32_t handles; /* how many there are at most at a time: a multiple of 64, MAX_HANDLES at most; else 0 */
};

#define MAX_HANDLES (1u << 16)
#define MAX_FRAMES_LIMIT 512u

/* How allocations are found. */
enum alloc_means {
    ALLOC_NONE = 0,
    /* AllocationSampled, .NET 10 and later: each byte with the same chance, 102,400 bytes apart on average */
    ALLOC_SAMPLED = 1,
    ALLOC_TICK = 2, /* AllocationTick, before .NET 10: about every 102,400 bytes of a heap */
    ALLOC_OBJECT = 3, /* ObjectAllocated, every object */
};

/* MSG_BEGUN */
struct begin_reply {
    int32_t result; /* if not 0 there are no events, and the agent leaves */
    uint32_t step; /* what failed: enum begin_step */
    uint32_t events; /* those that will be reported */
    uint32_t alloc_means; /* enum alloc_means */
    uint32_t runtime_major; /* version of the runtime */
    uint32_t reserved;
};

enum begin_step { STEP_NONE, STEP_REQUEST, STEP_RING, STEP_INTERFACE, STEP_MASK, STEP_EVENTPIPE };

#define RING_MAGIC 0x52534c43u /* "CLSR" */
#define RING_CONTROL_SIZE 4096u

/*
 * A thread that waits for a lock. The thread that puts itself here takes it out when the wait is
 * over; a wait that an exception ends may stay, until the thread waits again. The reader trusts
 * what it reads if `since` is not 0, and the same before and after.
 */
struct lock_wait {
    uint32_t os_id; /* of the thread, as the target sees it; 0: free */
    uint32_t reserved;
    uint64_t since; /* CLOCK_MONOTONIC, in ns; 0: the other fields are not valid */
    uint64_t lock; /* its id: the address of the runtime's AwareLock, or what a System.Threading.Lock waits with */
    uint64_t object; /* that is locked, as EVENT_CONTENTION has it: its address when the wait began */
    uint64_t class; /* as in EVENT_CONTENTION */
};

#define LOCK_WAITS 64u

/* A bit of the class of an object that is locked: the object has no place in the sync table, and so nobody
 * waits for its monitor. It is a System.Threading.Lock, or has moved, and the class is not its own. Where monitors
 * are managed code, they are Locks too: the reader finds out whose monitor a Lock is. */
#define LOCKED_NO_MONITOR 1u

/*
 * Positions count bytes since the beginning; their remainder by `capacity`, a power
 * of two, is a place in the ring. Records lie between tail and head. Each side
 * checks what the other writes.
 */
struct ring_control {
    /* written by the reader before the agent sees it */
    uint32_t magic;
    uint32_t version; /* PROTOCOL_VERSION */
    uint64_t capacity;
    uint64_t unused0[6];
    /* written by the agent; a cache line */
    uint64_t head; /* reserved so far */
    uint64_t unused1[7];
    /* written by the reader; a cache line */
    uint64_t tail; /* taken so far: the memory before it is zero again */
    uint64_t unused2[7];
    /* written by the agent: events since the beginning, by enum event_type */
    uint64_t seen[16]; /* that the runtime has reported to the agent */
    uint64_t published[16];
    uint64_t dropped[16]; /* chosen, but the ring was full or no buffer was free */
    uint64_t failed[16]; /* of published: without a stack, as DoStackSnapshot failed */
    /* written by the reader */
    uint64_t released; /* a held thread goes on when this is beyond its record's position */
    uint64_t walking; /* ThreadID that is being walked from outside; 0: none */
    /* Where the runtime keeps exceptions, as offsets in bytes. */
    uint64_t thread_exception; /* in a thread, the address of its newest exception's state; 0: nothing is known */
    uint64_t exception_object; /* in that state, the handle of the exception object: see exception_direct */
    uint64_t exception_previous; /* there, the address of the state of the exception before it on the thread */
    uint64_t object_trace; /* in an exception object, its stack trace; 0: not known */
    /* written by the agent: the waits for locks that are going on, as far as there is room */
    struct lock_wait waits[LOCK_WAITS];
    /* written by the reader, for chains of awaits */
    uint64_t heap_moving; /* the address of a count of 4 bytes, 0 while references are right; 0: no chains are wanted */
    uint64_t table_base; /* in a MethodTable, the address of that of its base class, as an offset in bytes */
    /* written by the reader */
    uint64_t exception_direct; /* 1: the state of an exception has not the handle of the object, but its address */
    uint64_t owner_form; /* enum owner_form; written after the four that follow */
    uint64_t id_dispenser; /* the address of the address of the runtime's IdDispenser */
    uint64_t dispenser_threads; /* in that, the address of the table of threads by managed id, as an offset in bytes */
    uint64_t thread_managed_id, thread_os_id; /* in a thread, likewise; each has 4 bytes */
};

/* What the runtime's ContentionStart says of the owner of a lock. */
enum owner_form {
    OWNER_UNKNOWN = 0, /* nothing that could be understood */
    OWNER_OS_ID = 1, /* the OS thread id */
    OWNER_MANAGED_ID = 2, /* the managed thread id, which another thread may have once the owner has ended */
};

/*
 * Chains of awaits: which async methods await the one that has an event. Objects lead from
 * one to the next. The reader knows their classes, and makes rules of what it knows; the
 * agent follows references by the rules, and copies the words that they name.
 *
 * A rule is for a frame, by its instruction pointer, or for the objects of a class, by its
 * MethodTable. Rules are in a hash table: the place of a key is the upper bits of its product
 * with CHAIN_HASH, or one of the CHAIN_PROBES - 1 places behind it, up to a place without a
 * key. They are never taken away, and changed in one way only: a rule for a class gets a word
 * more. What tells of it is written last, and at once: `flags` to `heads`.
 */
#define CHAIN_RULES 4096u
#define CHAIN_RULES_SIZE (CHAIN_RULES * 64u)
#define CHAIN_HASH UINT64_C(0x9e3779b97f4a7c15)
#define CHAIN_SHIFT 52 /* 64 - 12: 4096 places */
#define CHAIN_PROBES 16u
#define CHAIN_RULE_WORDS 11u

enum chain_flags {
    CHAIN_OBJECT = 1u << 0, /* of a frame: its argument is an object, which is followed */
    CHAIN_ON_STACK = 1u << 1, /* of a frame: the argument is in memory, at the register and `offset` */
    CHAIN_BASE = 1u << 2, /* of a class: also for classes that derive from it and have no rule */
    /*
     * Of a frame that resumes methods which the runtime itself has suspended: its argument is a structure in the frame.
     * `offset` is where in a thread (ThreadID) the address of its static fields is, and `field` where among these the
     * address of the thread's newest structure is. words[0] is the address of the structure before.
     */
    CHAIN_RESUMES = 1u << 3,
};

/* In a frame_record, the registers from `sp` on. */
enum chain_register { CHAIN_SP, CHAIN_BP, CHAIN_BX, CHAIN_R12, CHAIN_R13, CHAIN_R14, CHAIN_R15 };

struct chain_rule {
    uint64_t key; /* written last; 0: there is no rule */
    uint16_t flags; /* enum chain_flags */
    uint16_t follow; /* bit i: words[i] is a reference, and its object is followed */
    uint8_t count; /* of words */
    uint8_t base; /* of a frame: enum chain_register */
    union {
        uint16_t field; /* of a frame: see CHAIN_RESUMES */
        uint16_t heads; /* of a class; bit i: words[i] is a reference, and of its object the first word is copied */
    };
    int32_t offset; /* of a frame */
    int32_t words[CHAIN_RULE_WORDS]; /* offsets in bytes, from the argument or in the object */
};

/* What a word of a chain is, in the lowest bits of its address. */
enum chain_word_kind {
    CHAIN_WORD = 0,
    CHAIN_TABLE = 1, /* the first word of an object */
    CHAIN_ARGUMENT = 2, /* not of memory: `address` / 8 is the index of a frame, `value` its argument */
    CHAIN_KINDS = 7, /* the bits */
};

struct chain_word {
    uint64_t address;
    uint64_t value;
};

#define MOST_CHAIN_WORDS 768u

enum event_type {
    EVENT_PADDING = 0, /* to the end of the ring; only `size` is valid */
    /* values: ClassID, size in bytes, bytes that the tick stands for (ALLOC_TICK only), address. With RECORD_HANDLE
     * a struct handle_record follows. */
    EVENT_ALLOC = 1,
    /*
     * ClassID and address of the object, if the reader has told where they are, and to be checked by the
     * reader; else 0. Then enum exception_flags. Then the length of the type's name in UTF-16 units, in
     * the 16 lowest bits; in the next 16 that of the message; in the highest 32 that of the whole message,
     * or NO_MESSAGE. After the frames come the name and the message.
     */
    EVENT_EXCEPTION = 2,
    /*
     * A handler begins: FunctionID of its method, address of the exception object or 0, and 1 if the
     * thread's last handler has thrown its exception again ("throw;"). If FunctionID is 0, a filter
     * swallows the exception that the thread has published last and not caught yet. No stack.
     */
    EVENT_CAUGHT = 3,
    /* When the wait is over: the lock's id, OS thread id of its owner when the wait began
     * (0: unknown), duration in ns, ClassID of the object that is locked and LOCKED_NO_MONITOR (0: unknown). */
    EVENT_CONTENTION = 4,
    EVENT_THREAD_STARTING = 5, /* ThreadID of the thread that this one starts */
    EVENT_THREAD_CREATED = 6, /* ThreadID, OS thread id; no stack */
    EVENT_THREAD_DESTROYED = 7, /* ThreadID; no stack */
    EVENT_GC_TRIGGERED = 8, /* reason; the stack of who triggered it */
    EVENT_GC_START = 9, /* number, generation, reason, type; no stack */
    EVENT_GC_END = 10, /* number, generation; no stack */
    EVENT_SUSPEND_BEGIN = 11, /* reason, number of the collection, 0, how many events were dropped before; no stack */
    EVENT_SUSPEND_END = 12, /* no stack */
    EVENT_RESTART_END = 13, /* 0, 0, 0, how many events were dropped before: the runtime runs again; no stack */
    /* Like EVENT_EXCEPTION, of an object that was thrown before. Between the frames and the name there is
     * a struct short_frame more: where it was thrown first, or zeros if it does not say. */
    EVENT_RETHROWN = 14,
    /*
     * When the wait is over: duration in ns, enum wait_source, and the ClassID of the object with LOCKED_NO_MONITOR
     * (0: unknown). Of WAIT_LOCK also the lock's id.
     */
    EVENT_WAITED = 15,
    EVENT_TYPES = 16,
};

/* What a thread has waited for. */
enum wait_source {
    WAIT_OTHER = 0, /* not known here: its frames tell. The class may be that of a WaitHandle, without more */
    WAIT_MONITOR = 1, /* Monitor.Wait: a pulse of the object's monitor */
    WAIT_LOCK = 2, /* a lock, of which a ContentionStart told before */
};

/* Those of ExceptionThrown_V1 (src/coreclr/vm/ClrEtwAll.man). */
enum exception_flags {
    EXCEPTION_INNER = 1u << 0, /* it has an inner exception */
    EXCEPTION_NESTED = 1u << 1, /* it was thrown while another one was in flight */
};

#define MAX_NAME_UNITS 256u /* longer names are cut */
#define MAX_MESSAGE_UNITS 256u /* longer messages are cut */
#define NO_MESSAGE UINT32_MAX /* messages were not asked for */

enum record_flags {
    RECORD_HELD = 1u << 0, /* the thread waits for ring_control.released */
    RECORD_CUT = 1u << 1, /* the stack has more than max_frames frames */
    RECORD_REGISTERS = 1u << 2, /* frames are struct frame_record */
    RECORD_HANDLE = 1u << 3, /* handles were asked for */
    RECORD_CHAIN = 1u << 4, /* behind the frames there are the number of words of a chain, in 8 bytes, and the words */
};

/* A record; the frames follow it, leaf first, then the words of a chain, then what an exception has besides.
 * `size` is written last, and is 0 until then. */
struct record {
    uint32_t size; /* of all of it, a multiple of 8: after a text there may be zeros */
    uint8_t type; /* enum event_type */
    uint8_t flags; /* enum record_flags */
    uint16_t frames;
    uint64_t time; /* CLOCK_MONOTONIC, in ns */
    uint64_t thread; /* ThreadID; 0: not known to the runtime */
    uint32_t os_id; /* of the thread, as the target sees it */
    int32_t result; /* of DoStackSnapshot; 0 if the stack was cut */
    uint64_t values[4];
};

/* A weak handle of an object. */
struct handle_record {
    uint64_t handle; /* the address of a word that has the object's address, and 0 once it is dead; 0: there is none */
    uint64_t slot; /* for MSG_FREE */
};

struct short_frame {
    uint64_t function; /* FunctionID; 0: a run of unmanaged frames */
    uint64_t ip;
};

#endif
