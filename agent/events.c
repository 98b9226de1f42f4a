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
    struct event_pipe event_pipe;
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
    uint64_t lock, class, owner; /* of the wait for a lock that has begun */
    struct {
        uint64_t since; /* 0: no wait has begun */
        uint64_t class;
        enum wait_source source;
    } waits;
    uint64_t published, filters;
    uint8_t wait; /* 1 more than its place among the ring's waits; 0: it has none */
    bool catching; /* a handler has begun, and neither ended nor thrown something new */
    bool caught_published; /* the exception of that handler was published */
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

/* Whether the start and the end of garbage collections are published. */
bool events_of_collections(void) {
    return events_wanted(WANT_GC) || (handles_wanted() && events_wanted(WANT_ALLOC));
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
    if (s->chain) r->flags |= RECORD_CHAIN;
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

/*
 * Walks this thread's stack, and follows what awaits its async methods. A thread that can be in
 * preemptive mode may lose its objects between the two: then it is walked once more.
 */
static void walk(struct stack *s, id thread, bool preemptive) {
    struct ring *r = &events.ring;
    s->thread = thread;
    stack_walk(s, events.info, chain_possible(r) ? r->rules : 0);
    if (s->roots) chain_add(s, r);
    if (s->chain && preemptive && !stack_unmoved(s, events.info)) stack_frames_only(s);
}

/* Claims a buffer for a stack, if there is room for a record. */
static bool claim(enum event_type type, struct stack *s) {
    if (ring_has_room(&events.ring, sizeof(struct record)) && stack_claim(s)) return true;
    ring_count(&events.ring, DROPPED, type);
    return false;
}

/* Publishes a record with the stack of this thread. */
void events_stack(enum event_type type, struct values values) {
    struct stack s;
    if (!claim(type, &s)) return;
    struct record r = new_record(type, values);
    walk(&s, r.thread, true);
    publish_and_hold(&r, &s);
}

/* Publishes an allocation, with a handle of the object if the reader wants to follow it. */
static void publish_alloc(struct values values, id object) {
    struct stack s;
    if (!claim(EVENT_ALLOC, &s)) return;
    struct record r = new_record(EVENT_ALLOC, values);
    walk(&s, r.thread, false);
    struct handle_record handle = {0};
    if (handles_wanted()) {
        handle_make(object, &handle);
        stack_add(&s, &handle, sizeof handle);
        r.flags |= RECORD_HANDLE;
    }
    if (!publish_and_hold(&r, &s) && handle.handle) handle_destroy((uint32_t)handle.slot);
}

void events_alloc(id class, uint64_t size, uint64_t tick, uint64_t address) {
    /* How many bytes an event stands for: the runtime's own sampling has one for
     * 102,400 bytes on average, and one for every object that is larger. */
    const uint64_t distance = 102400;
    uint64_t bytes = size;
    if (events.alloc_means == ALLOC_TICK) bytes = tick;
    if (events.alloc_means == ALLOC_SAMPLED && size < distance) bytes = distance;
    events_seen(EVENT_ALLOC);
    if (chance(bytes, events.wanted.alloc_bytes)) publish_alloc(VALUES(class, size, tick, address), address);
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
    mine.lock = mine.class = mine.owner = 0;
    mine.waits.since = 0;
    mine.wait = 0;
    mine.catching = mine.caught_published = false;
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

static uint64_t offset_of(const uint64_t *offset) {
    return __atomic_load_n(offset, __ATOMIC_RELAXED);
}

/* The exception that is being thrown or caught. What is not known is 0. */
struct exception {
    uint64_t state; /* the runtime's; the newest one of this thread */
    uint64_t object;
    id class;
    bool again; /* the object was thrown before */
    struct short_frame first; /* where */
};

/* The address of the exception object of a state, which has that (.NET 11) or a handle of the object. */
static bool object_of(uint64_t state, uint64_t *object) {
    const struct ring_control *c = events.ring.control;
    if (!peek(state + offset_of(&c->exception_object), object)) return false;
    return offset_of(&c->exception_direct) || peek(*object, object);
}

/*
 * Finds the exception object of this thread. The reader says where the runtime's
 * structures have it. The thread is in cooperative mode while it throws and when a
 * handler begins, so the object does not move meanwhile. If the reader is wrong, the
 * result is wrong: so memory is read by a system call, which cannot fault, and the
 * reader checks the class against the type's name.
 */
static struct exception this_exception(void) {
    struct exception e = {0};
    uint64_t offset = offset_of(&events.ring.control->thread_exception);
    id thread = 0;
    if (!offset || get_current_thread_id(events.info, &thread) != S_OK) return e;
    if (!peek(thread + offset, &e.state) || !object_of(e.state, &e.object)) e.object = 0;
    return e;
}

/*
 * Whether an exception that is being thrown was thrown before, as its stack trace says.
 * It has none yet if it is new. ExceptionDispatchInfo.Throw, with which await throws too,
 * gives it back the one that it had. The first element is where it was thrown first. A
 * stack trace is an array of bytes, or an array of objects whose first element is one
 * (src/coreclr/vm/object.h, StackTraceArray): a count, a thread, and then the elements,
 * each with an instruction pointer, a stack pointer and a MethodDesc.
 */
static void read_trace(struct exception *e, uint64_t trace) {
    enum { ELEMENTS = 16 /* of an array */, COUNT = 0, IP = 2, METHOD = 4, WORDS };
    uint64_t words[WORDS];
    if (!peek_bytes(trace + ELEMENTS, words, sizeof words)) return;
    if (words[0] >> 32 && !peek_bytes(words[0] + ELEMENTS, words, sizeof words)) return;
    if (!(uint32_t)words[COUNT]) return;
    e->again = true;
    e->first = (struct short_frame){.function = words[METHOD], .ip = words[IP]};
}

/* Whether a handler of this thread is running for the same object. "throw e;" in a
 * handler takes the stack trace away. */
static bool in_handler(const struct exception *e) {
    enum { MOST_HANDLERS = 16 };
    uint64_t state = e->state, object, previous = offset_of(&events.ring.control->exception_previous);
    for (int i = 0; i < MOST_HANDLERS && peek(state + previous, &state) && state; i++)
        if (object_of(state, &object) && object == e->object) return true;
    return false;
}

static struct exception thrown_exception(uint32_t flags) {
    const uint64_t marks = 7; /* the garbage collector's, in the low bits of an object's first word */
    struct exception e = this_exception();
    uint64_t class, trace, offset = offset_of(&events.ring.control->object_trace);
    if (!e.object || !peek(e.object, &class)) return e;
    e.class = class & ~marks;
    if (!offset || !peek(e.object + offset, &trace)) return e;
    if (trace) read_trace(&e, trace);
    if (!e.again && (flags & EXCEPTION_NESTED)) e.again = in_handler(&e);
    return e;
}

/*
 * The objects of exceptions that were published lately, if not all are: when one is thrown
 * again, that is published too. An object that the garbage collector has moved is
 * not found, and another one may have its address: the reader checks that.
 */
static struct {
    atomic_uint_fast64_t object[1 << 10];
} chosen;

static atomic_uint_fast64_t *place_of(uint64_t object) {
    return &chosen.object[(object >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

static bool choose(const struct exception *e) {
    if (events.wanted.exception_every <= 1) return true;
    if (e->again) return atomic_load_explicit(place_of(e->object), memory_order_relaxed) == e->object;
    if (!chance(1, events.wanted.exception_every)) return false;
    if (e->object) atomic_store_explicit(place_of(e->object), e->object, memory_order_relaxed);
    return true;
}

static uint32_t cut(size_t units, uint32_t most) {
    return units < most ? (uint32_t)units : most;
}

/* Publishes an exception that is being thrown. */
static bool publish_exception(enum event_type type, const struct exception *e, const struct thrown *t) {
    struct stack s;
    if (!claim(type, &s)) return false;
    uint32_t name = cut(t->name.units, MAX_NAME_UNITS), message = 0;
    uint64_t whole = NO_MESSAGE;
    if (events.wanted.flags & BEGIN_MESSAGES) {
        message = cut(t->message.units, MAX_MESSAGE_UNITS);
        whole = cut(t->message.units, NO_MESSAGE - 1);
    }
    uint64_t lengths = name | message << 16 | whole << 32;
    struct record r = new_record(type, VALUES(e->class, e->object, t->flags, lengths));
    walk(&s, r.thread, false);
    if (type == EVENT_RETHROWN) stack_add(&s, &e->first, sizeof e->first);
    stack_add(&s, t->name.at, name * sizeof(uint16_t));
    stack_add(&s, t->message.at, message * sizeof(uint16_t));
    stack_pad(&s);
    return publish_and_hold(&r, &s);
}

void events_exception_thrown(const struct thrown *t) {
    const uint32_t rethrown = 4; /* ExceptionThrown's flag of "throw;", which only .NET 8 reports */
    if (t->flags & rethrown) return; /* events_catch_start notes it */
    struct exception e = thrown_exception(t->flags);
    enum event_type type = e.again ? EVENT_RETHROWN : EVENT_EXCEPTION;
    events_seen(type);
    push_exception(choose(&e) && publish_exception(type, &e, t), false);
    mine.catching = false;
}

static void note_caught(id function, bool again) {
    uint64_t object = function ? this_exception().object : 0;
    events_seen(EVENT_CAUGHT);
    events_note(EVENT_CAUGHT, VALUES(function, object, again));
}

/* If a handler throws its exception again ("throw;"), only the start of the next handler is
 * reported. If all exceptions are published, so is every start of a handler: the reader
 * knows best which exception it is for. */
void events_catch_start(id function) {
    remember_session();
    bool again = mine.catching;
    mine.catching = true;
    if (!again) {
        mine.caught_published = false;
        if (mine.filters & 1) return; /* of an exception that was thrown before the session began */
        mine.caught_published = mine.published & 1;
        pop_exception();
    }
    if (mine.caught_published || events.wanted.exception_every <= 1) note_caught(function, again);
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
        if (mine.published & 1) note_caught(0, false);
    }
}

/* The class of an object that is locked, as protocol.h has it; 0 if it cannot be read. */
static id locked_class(uint64_t object) {
    const uint64_t in_table = UINT64_C(1) << 27, hash = UINT64_C(1) << 26; /* src/coreclr/vm/syncblk.h */
    const uint64_t marks = 7;
    uint64_t words[2]; /* before the object, whose header is the upper half of that; and the object's first */
    if (!object || !peek_bytes(object - sizeof *words, words, sizeof words)) return 0;
    uint64_t header = words[0] >> 32;
    bool monitor = (header & (in_table | hash)) == in_table;
    return (words[1] & ~marks) | (monitor ? 0 : LOCKED_NO_MONITOR);
}

static struct lock_wait *shown_wait(void) {
    return &events.ring.control->waits[mine.wait - 1];
}

/* Takes a place among the ring's waits, if there is one. */
static bool claim_wait(void) {
    for (uint32_t i = 0; i < LOCK_WAITS && !mine.wait; i++) {
        uint32_t place = (os_id() + i) % LOCK_WAITS, nobody = 0;
        if (__atomic_compare_exchange_n(&events.ring.control->waits[place].os_id, &nobody, os_id(), false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            mine.wait = (uint8_t)(place + 1);
    }
    return mine.wait;
}

/* Shows the wait of this thread to the reader. */
static void show_wait(uint64_t object) {
    if (!claim_wait()) return;
    struct lock_wait *w = shown_wait();
    __atomic_store_n(&w->since, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&w->lock, mine.lock, __ATOMIC_RELAXED);
    __atomic_store_n(&w->object, object, __ATOMIC_RELAXED);
    __atomic_store_n(&w->class, mine.class, __ATOMIC_RELAXED);
    __atomic_store_n(&w->since, now_ns(), __ATOMIC_RELEASE);
}

static void hide_wait(void) {
    if (!mine.wait) return;
    __atomic_store_n(&shown_wait()->since, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&shown_wait()->os_id, 0, __ATOMIC_RELEASE);
    mine.wait = 0;
}

/*
 * The OS thread id of the thread with a managed id; 0: there is none, or it cannot be read. The table may change
 * meanwhile: the thread must have the id itself.
 */
static uint32_t os_id_of(uint64_t managed_id) {
    const struct ring_control *c = events.ring.control;
    uint64_t dispenser, table, thread;
    uint32_t its_id, os_id;
    if ((uint32_t)managed_id != managed_id || !managed_id) return 0;
    if (!peek(c->id_dispenser, &dispenser) || !peek(dispenser + c->dispenser_threads, &table)) return 0;
    if (!peek(table + managed_id * sizeof thread, &thread) || !thread) return 0;
    if (!peek_bytes(thread + c->thread_os_id, &os_id, sizeof os_id)) return 0;
    if (!peek_bytes(thread + c->thread_managed_id, &its_id, sizeof its_id)) return 0;
    return its_id == managed_id ? os_id : 0;
}

/* The OS thread id of the owner of a lock, now that a wait for it begins; 0: it is not known. */
static uint64_t owner_os_id(uint64_t said) {
    switch (__atomic_load_n(&events.ring.control->owner_form, __ATOMIC_ACQUIRE)) {
    case OWNER_OS_ID: return said;
    case OWNER_MANAGED_ID: return os_id_of(said);
    }
    return 0;
}

void events_contention_start(uint64_t lock, uint64_t object, uint64_t owner) {
    remember_session();
    mine.lock = lock;
    mine.class = locked_class(object);
    mine.owner = owner_os_id(owner);
    if (events_wanted(WANT_CONTENTION)) show_wait(object);
}

void events_contention_stop(uint64_t ns) {
    remember_session();
    hide_wait();
    if (events_wanted(WANT_CONTENTION)) {
        events_seen(EVENT_CONTENTION);
        if (ns >= events.wanted.contention_ns)
            events_stack(EVENT_CONTENTION, VALUES(mine.lock, mine.owner, ns, mine.class));
    }
    mine.lock = mine.class = mine.owner = 0;
}

/* The start of a wait that an exception has ended stays, until the thread waits again. */
void events_wait_start(bool monitor, uint64_t object) {
    remember_session();
    mine.waits.source = WAIT_OTHER;
    mine.waits.class = 0;
    if (monitor) {
        mine.waits.source = WAIT_MONITOR;
        mine.waits.class = locked_class(object);
    } else if (mine.lock) {
        mine.waits.source = WAIT_LOCK;
        mine.waits.class = mine.class;
    } else if (object && peek(object, &mine.waits.class)) {
        mine.waits.class &= ~(uint64_t)7; /* the garbage collector's marks */
    }
    mine.waits.since = now_ns();
}

void events_wait_stop(void) {
    remember_session();
    uint64_t since = mine.waits.since;
    if (!since) return;
    mine.waits.since = 0;
    uint64_t ns = now_ns() - since;
    events_seen(EVENT_WAITED);
    uint64_t lock = mine.waits.source == WAIT_LOCK ? mine.lock : 0;
    if (ns >= events.wanted.wait_ns)
        events_stack(EVENT_WAITED, VALUES(ns, mine.waits.source, mine.waits.class, lock));
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

static bool handles_sound(const struct begin_request *r) {
    if (!(r->flags & BEGIN_HANDLES)) return !r->handles;
    return (r->events & WANT_ALLOC) && r->handles && r->handles <= MAX_HANDLES && r->handles % 64 == 0;
}

static bool sound(const struct begin_request *r, bool attached) {
    const uint32_t known = WANT_ALLOC | WANT_EXCEPTION | WANT_CONTENTION | WANT_THREAD | WANT_GC |
                           WANT_WAIT;
    bool every_object = r->flags & BEGIN_EVERY_OBJECT;
    return !(r->events & ~known) && r->alloc_bytes && r->exception_every &&
           r->max_frames && r->max_frames <= MAX_FRAMES_LIMIT &&
           !(every_object && attached) && handles_sound(r);
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
    events.wanted = *request;
    if (major < 9) events.wanted.events &= ~(uint32_t)WANT_WAIT;
    reply->events = events.wanted.events;
    reply->alloc_means = events.alloc_means = alloc_means(request);
    events.info = info;
    events.session++;
    if (request->events) {
        bool registers = request->flags & BEGIN_REGISTERS;
        size_t frame = registers ? sizeof(struct frame_record) : sizeof(struct short_frame);
        size_t largest = sizeof(struct record) + request->max_frames * frame + MAX_ADDED;
        if (!ring_open(&events.ring, memory, largest)) return fail(reply, STEP_RING, E_INVALIDARG);
        if (!stacks_allocate(request->max_frames, registers)) return fail(reply, STEP_RING, E_OUTOFMEMORY);
        if (request->handles && !handles_open(info, request->handles)) return fail(reply, STEP_RING, E_OUTOFMEMORY);
    }
    hr = set_event_mask(info, low_mask(), events.wanted.events ? COR_PRF_HIGH_MONITOR_EVENT_PIPE : 0);
    return hr == S_OK ? S_OK : fail(reply, STEP_MASK, hr);
}

hresult events_start(struct begin_reply *reply) {
    if (!events.wanted.events) return S_OK;
    /* This thread must not be held: the reader does not know yet that the session has begun. */
    atomic_store(&events.holding, true);
    atomic_store(&events.on, true);
    hresult hr = event_pipe_begin(events.info, &events.wanted, events.alloc_means, &events.event_pipe);
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
    event_pipe_end(events.info, &events.event_pipe);
    handles_close_all();
    if (events.wanted.events) set_event_mask(events.info, low_mask() & ~COR_PRF_MONITOR_THREADS, 0);
}

/* For use when none of the runtime's threads can be in the agent any more. */
void events_close(void) {
    ring_close(&events.ring);
    stacks_free();
    handles_free();
}

/* For use when some may still be. */
void events_abandon(void) {
    ring_abandon(&events.ring);
}

/* Whether the reader has taken all records. */
bool events_taken(void) {
    return ring_empty(&events.ring);
}
