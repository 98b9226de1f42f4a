/*
 * Notifications: what happens in the runtime, as records in the reader's ring.
 *
 * Everything here runs on the program's own threads, in the middle of their work.
 * So nothing blocks, nothing is allocated and no lock is taken. The reader may ask
 * for two kinds of wait, and sets their bounds.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "events.h"
#include "ring.h"

enum {
    MS = 1000000, /* in ns */
    SLICE = 10 * MS, /* how often a waiting thread checks whether the session has ended */
    MOST_WAIT_MS = 10000,
};

static struct {
    atomic_bool on; /* whether anything is published */
    struct object *info;
    struct begin_request wanted;
    struct ring ring;
    uint32_t mask;
    uint32_t alloc_means;
    uint32_t runtime_major;
    uint64_t event_pipe; /* its session; 0: none */
    uint32_t session; /* number of the session */
    atomic_bool holding; /* a thread is held */
} events;

/*
 * The state of a thread. Exceptions in flight are bits, the newest one lowest:
 * whether it was published, or whether the entry stands for the start of a filter
 * and not for an exception. An exception that only native code catches is never
 * removed; its bit moves up, and does no harm.
 */
static __thread struct {
    uint64_t random;
    uint64_t lock, owner; /* of the wait that has begun */
    uint64_t published, filters;
    bool catching; /* a handler has begun, and neither ended nor thrown something new */
    uint32_t session; /* to which the exceptions belong */
    uint32_t os_id;
} mine;

static uint32_t os_id(void) {
    if (!mine.os_id) mine.os_id = (uint32_t)syscall(SYS_gettid);
    return mine.os_id;
}

/* True with a probability of part/whole. The generator is xorshift64*. */
static bool chance(uint64_t part, uint64_t whole) {
    if (part >= whole) return true;
    uint64_t x = mine.random;
    if (!x) x = now_ns() ^ (uint64_t)os_id() << 32;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    mine.random = x;
    return (uint64_t)((unsigned __int128)(x * UINT64_C(0x2545f4914f6cdd1d)) * whole >> 64) < part;
}

bool events_wanted(uint32_t which) {
    return atomic_load_explicit(&events.on, memory_order_acquire) && (events.wanted.events & which);
}

static void wait_slice(const uint64_t *shared, uint64_t value) {
    struct timespec slice = {.tv_nsec = SLICE};
    syscall(SYS_futex, (const uint32_t *)shared, FUTEX_WAIT, (uint32_t)value,
            &slice, 0, 0); /* its low half: little-endian */
}

static uint64_t deadline(uint32_t ms) {
    return now_ns() + (uint64_t)(ms < MOST_WAIT_MS ? ms : MOST_WAIT_MS) * MS;
}

/* Waits until the reader has released the record at position. */
static void hold(uint64_t position) {
    const uint64_t *released = &events.ring.control->released;
    for (uint64_t end = deadline(events.wanted.hold_ms); atomic_load(&events.on) && now_ns() < end;) {
        uint64_t v = __atomic_load_n(released, __ATOMIC_ACQUIRE);
        if (v > position) return;
        wait_slice(released, v);
    }
}

/* Waits until the reader no longer walks the thread. */
static void wait_for_walk(id thread) {
    const uint64_t *walking = &events.ring.control->walking;
    uint64_t end = deadline(events.wanted.destroy_ms);
    while (__atomic_load_n(walking, __ATOMIC_ACQUIRE) == thread && atomic_load(&events.on) && now_ns() < end)
        wait_slice(walking, thread);
}

static struct record new_record(enum event_type type, struct values values) {
    id thread = 0;
    get_current_thread_id(events.info, &thread); /* fails on a thread that the runtime does not know */
    struct record r = {.size = sizeof r, .type = (uint8_t)type, .time = now_ns(), .thread = thread, .os_id = os_id()};
    memcpy(r.values, values.v, sizeof r.values);
    return r;
}

static bool publish(struct record *r, const void *frames, uint64_t *position) {
    bool put = ring_put(&events.ring, r, frames, position);
    ring_count(&events.ring, put ? PUBLISHED : DROPPED, r->type);
    if (put && r->result != S_OK) ring_count(&events.ring, FAILED, r->type);
    return put;
}

void events_seen(enum event_type type) {
    ring_count(&events.ring, SEEN, type);
}

/* How many events have been dropped so far, of all types. */
uint64_t events_dropped(void) {
    uint64_t sum = 0;
    for (int i = 0; i < EVENT_TYPES; i++) sum += __atomic_load_n(&events.ring.control->dropped[i], __ATOMIC_RELAXED);
    return sum;
}

/* Publishes a record without a stack. */
void events_note(enum event_type type, struct values values) {
    uint64_t position;
    struct record r = new_record(type, values);
    publish(&r, 0, &position);
}

static bool publish_and_hold(struct record *r, struct stack *s) {
    r->size += s->size;
    r->frames = (uint16_t)s->count;
    r->result = s->result;
    if (s->cut) r->flags |= RECORD_CUT;
    if (events.wanted.flags & BEGIN_REGISTERS) r->flags |= RECORD_REGISTERS;
    bool held = (events.wanted.flags & BEGIN_HOLD) && !atomic_exchange(&events.holding, true);
    if (held) r->flags |= RECORD_HELD;
    uint64_t position;
    bool published = publish(r, s->frames, &position);
    stack_release(s);
    if (!held) return published;
    if (published) hold(position);
    atomic_store(&events.holding, false);
    return published;
}

/* Publishes a record with the stack of this thread, and a name. The stack is walked only
 * if there is room for the record. */
static bool publish_stack(enum event_type type, struct values values, const void *name, size_t size) {
    struct stack s;
    if (!ring_has_room(&events.ring, sizeof(struct record)) || !stack_claim(&s)) {
        ring_count(&events.ring, DROPPED, type);
        return false;
    }
    struct record r = new_record(type, values);
    stack_walk(&s, events.info);
    stack_add_name(&s, name, size);
    return publish_and_hold(&r, &s);
}

void events_stack(enum event_type type, struct values values) {
    publish_stack(type, values, "", 0);
}

void events_alloc(id class, uint64_t size, uint64_t tick, uint64_t address) {
    /* How many bytes an event stands for: the runtime's own sampling has one for
     * 102,400 bytes on average, and one for every object that is larger. */
    const uint64_t distance = 102400;
    uint64_t bytes = size;
    if (events.alloc_means == ALLOC_TICK) bytes = tick;
    if (events.alloc_means == ALLOC_SAMPLED && size < distance) bytes = distance;
    events_seen(EVENT_ALLOC);
    if (chance(bytes, events.wanted.alloc_bytes)) events_stack(EVENT_ALLOC, VALUES(class, size, tick, address));
}

hresult on_object_allocated(struct object *self, id object, id class) {
    (void)self;
    size_t size = 0;
    if (events_wanted(WANT_ALLOC) && get_object_size(events.info, object, &size) == S_OK)
        events_alloc(class, size, 0, object);
    return S_OK;
}

/* What happened in an earlier session is forgotten. */
static void remember_session(void) {
    if (mine.session == events.session) return;
    mine.session = events.session;
    mine.published = mine.filters = 0;
    mine.lock = mine.owner = 0;
    mine.catching = false;
}

static void push_exception(bool published, bool filter) {
    remember_session();
    mine.published = mine.published << 1 | published;
    mine.filters = mine.filters << 1 | filter;
}

static void pop_exception(void) {
    mine.published >>= 1;
    mine.filters >>= 1;
}

static bool peek(uint64_t address, uint64_t *value) {
    struct iovec to = {.iov_base = value, .iov_len = sizeof *value};
    struct iovec from = {.iov_base = (void *)(uintptr_t)address, .iov_len = sizeof *value};
    return syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0) == sizeof *value;
}

/*
 * The class of the exception that this thread is throwing; 0 if it cannot be found.
 * The reader says where the runtime's structures have it. If the reader is wrong, or
 * the object moves, the result is wrong: so it is read by a system call, which cannot
 * fault, and the reader checks it against the type's name.
 */
static id thrown_class(void) {
    uint64_t exception = __atomic_load_n(&events.ring.control->thread_exception, __ATOMIC_RELAXED);
    uint64_t object = __atomic_load_n(&events.ring.control->exception_object, __ATOMIC_RELAXED);
    const uint64_t marks = 7; /* the garbage collector's, in the low bits of an object's first word */
    id thread = 0;
    uint64_t at;
    if (!exception || !object || get_current_thread_id(events.info, &thread) != S_OK) return 0;
    if (!peek(thread + exception, &at) || !peek(at + object, &at)) return 0; /* a handle */
    if (!peek(at, &at) || !peek(at, &at)) return 0; /* the object, and its first word */
    return at & ~marks;
}

void events_exception_thrown(const void *name, size_t units, uint32_t flags) {
    const uint32_t again = 4; /* ExceptionThrown's flag of a rethrow, which only .NET 8 reports */
    bool published = false;
    if (flags & again) return;
    events_seen(EVENT_EXCEPTION);
    if (units > MAX_NAME_UNITS) units = MAX_NAME_UNITS;
    if (chance(1, events.wanted.exception_every))
        published = publish_stack(EVENT_EXCEPTION, VALUES(thrown_class(), 0, flags, units), name,
                                  units * sizeof(uint16_t));
    push_exception(published, false);
    mine.catching = false;
}

static void note_caught(id function) {
    events_seen(EVENT_CAUGHT);
    events_note(EVENT_CAUGHT, VALUES(function));
}

/* If a handler throws its exception again, only the start of the next handler is
 * reported. The exception has been caught already. */
void events_catch_start(id function) {
    remember_session();
    if (mine.catching) return;
    mine.catching = true;
    if (mine.filters & 1) return; /* of an exception that was thrown before the session began */
    bool published = mine.published & 1;
    pop_exception();
    if (published) note_caught(function);
}

void events_catch_stop(void) {
    mine.catching = false;
}

void events_filter_start(void) {
    push_exception(false, true);
}

/* Exceptions that the filter has thrown and not caught are swallowed by the runtime. */
void events_filter_stop(void) {
    remember_session();
    for (bool begin = false; mine.filters && !begin; pop_exception()) {
        begin = mine.filters & 1;
        if (mine.published & 1) note_caught(0);
    }
}

void events_contention_start(uint64_t lock, uint64_t owner) {
    remember_session();
    mine.lock = lock;
    mine.owner = owner;
}

void events_contention_stop(uint64_t ns) {
    remember_session();
    events_seen(EVENT_CONTENTION);
    if (ns >= events.wanted.contention_ns) events_stack(EVENT_CONTENTION, VALUES(mine.lock, mine.owner, ns));
    mine.lock = mine.owner = 0;
}

/* Comes right after ThreadCreated, on the new thread, and says more. */
hresult on_thread_assigned_to_os_thread(struct object *self, id thread, uint32_t os_id) {
    (void)self;
    if (!events_wanted(WANT_THREAD)) return S_OK;
    events_seen(EVENT_THREAD_CREATED);
    events_note(EVENT_THREAD_CREATED, VALUES(thread, os_id));
    return S_OK;
}

hresult on_thread_destroyed(struct object *self, id thread) {
    (void)self;
    if (!events_wanted(WANT_THREAD)) return S_OK;
    events_seen(EVENT_THREAD_DESTROYED);
    events_note(EVENT_THREAD_DESTROYED, VALUES(thread));
    wait_for_walk(thread);
    return S_OK;
}

static bool sound(const struct begin_request *r, bool attached) {
    const uint32_t known = WANT_ALLOC | WANT_EXCEPTION | WANT_CONTENTION | WANT_THREAD | WANT_GC;
    bool every_object = r->flags & BEGIN_EVERY_OBJECT;
    return !(r->events & ~known) && r->alloc_bytes && r->exception_every &&
           r->max_frames && r->max_frames <= MAX_FRAMES_LIMIT &&
           !(every_object && attached);
}

static uint32_t alloc_means(const struct begin_request *r) {
    if (!(r->events & WANT_ALLOC)) return ALLOC_NONE;
    if (r->flags & BEGIN_EVERY_OBJECT) return ALLOC_OBJECT;
    return events.runtime_major >= 10 ? ALLOC_SAMPLED : ALLOC_TICK;
}

static uint32_t low_mask(void) {
    uint32_t mask = COR_PRF_ENABLE_STACK_SNAPSHOT;
    if (events.alloc_means == ALLOC_OBJECT) mask |= COR_PRF_MONITOR_OBJECT_ALLOCATED | COR_PRF_ENABLE_OBJECT_ALLOCATED;
    if (events.wanted.events & WANT_THREAD) mask |= COR_PRF_MONITOR_THREADS;
    return mask;
}

static hresult fail(struct begin_reply *reply, enum begin_step step, hresult hr) {
    reply->step = step;
    return reply->result = hr < 0 ? hr : E_FAIL;
}

/*
 * Prepares what the reader has requested, and puts into the reply what it will get.
 * Nothing is published before events_start.
 */
hresult events_prepare(struct object *info, const struct begin_request *request,
                       int memory, bool attached, struct begin_reply *reply) {
    uint16_t major = 0;
    hresult hr = get_runtime_major(info, &major);
    if (hr != S_OK) return fail(reply, STEP_INTERFACE, hr);
    if (request->events && !sound(request, attached)) return fail(reply, STEP_REQUEST, E_INVALIDARG);
    reply->runtime_major = events.runtime_major = major;
    reply->events = request->events;
    reply->alloc_means = events.alloc_means = alloc_means(request);
    events.info = info;
    events.wanted = *request;
    events.session++;
    if (request->events) {
        bool registers = request->flags & BEGIN_REGISTERS;
        size_t frame = registers ? sizeof(struct frame_record) : sizeof(struct short_frame);
        size_t largest = sizeof(struct record) + request->max_frames * frame + MAX_NAME_SIZE;
        if (!ring_open(&events.ring, memory, largest)) return fail(reply, STEP_RING, E_INVALIDARG);
        if (!stacks_allocate(request->max_frames, registers)) return fail(reply, STEP_RING, E_OUTOFMEMORY);
    }
    hr = set_event_mask(info, low_mask(), request->events ? COR_PRF_HIGH_MONITOR_EVENT_PIPE : 0);
    return hr == S_OK ? S_OK : fail(reply, STEP_MASK, hr);
}

hresult events_start(struct begin_reply *reply) {
    if (!events.wanted.events) return S_OK;
    /* This thread must not be held: the reader does not know yet that the session has begun. */
    atomic_store(&events.holding, true);
    atomic_store(&events.on, true);
    hresult hr = event_pipe_begin(events.info, events.wanted.events, events.alloc_means, &events.event_pipe);
    atomic_store(&events.holding, false);
    if (hr == S_OK) return S_OK;
    events_quiet();
    return fail(reply, STEP_EVENTPIPE, hr);
}

/* From now on nothing more is published, and no thread waits. */
void events_quiet(void) {
    atomic_store(&events.on, false);
}

/* Tells the runtime that no events are wanted any more. Requests that can only be made
 * at the start of the process cannot be taken back, and stay. */
void events_stop(void) {
    events_quiet();
    if (events.event_pipe) event_pipe_stop(events.info, events.event_pipe);
    events.event_pipe = 0;
    if (events.wanted.events) set_event_mask(events.info, low_mask() & ~COR_PRF_MONITOR_THREADS, 0);
}

/* For use when none of the runtime's threads can be in the agent any more. */
void events_close(void) {
    ring_close(&events.ring);
    stacks_free();
}

/* For use when some may still be. */
void events_abandon(void) {
    ring_abandon(&events.ring);
}

/* Whether the reader has taken all records. */
bool events_taken(void) {
    return ring_empty(&events.ring);
}
