/*
 * The events that the runtime delivers over EventPipe: sampled allocations,
 * exceptions, contention, threads that are being started, garbage collections, waits.
 *
 * A session that a profiler starts without rundown is synchronous: an event is
 * delivered on the thread that raises it, while it raises it. The payloads have no
 * padding; their fields are in the order of src/coreclr/vm/ClrEtwAll.man in
 * dotnet/runtime, and later versions of an event only append fields. An object's
 * address is only a number here: the object may have moved.
 *
 * Exceptions are taken from EventPipe, although it has only the name of their type
 * and not the ClassID, because COR_PRF_MONITOR_EXCEPTIONS crashes programs: with it
 * .NET 9 and 10 call the profiler around filters and handlers while they hold the
 * exception where the garbage collector does not see it (dotnet/runtime#132462).
 */
#include <string.h>

#include "agent.h"
#include "events.h"

enum event_id {
    EVENT_ID_GC_START = 1,
    EVENT_ID_GC_END = 2,
    EVENT_ID_RESTART_END = 3,
    EVENT_ID_SUSPEND_END = 8,
    EVENT_ID_SUSPEND_BEGIN = 9,
    EVENT_ID_ALLOCATION_TICK = 10,
    EVENT_ID_GC_TRIGGERED = 35,
    EVENT_ID_THREAD_CREATING = 70,
    EVENT_ID_EXCEPTION_THROWN = 80,
    EVENT_ID_CONTENTION_START = 81,
    EVENT_ID_CONTENTION_STOP = 91,
    EVENT_ID_EXCEPTION_CATCH_START = 250,
    EVENT_ID_EXCEPTION_CATCH_STOP = 251,
    EVENT_ID_EXCEPTION_FILTER_START = 254,
    EVENT_ID_EXCEPTION_FILTER_STOP = 255,
    EVENT_ID_WAIT_START = 301,
    EVENT_ID_WAIT_STOP = 302,
    EVENT_ID_ALLOCATION_SAMPLED = 303,
};

#define KEYWORD_GC UINT64_C(0x1)
#define KEYWORD_CONTENTION UINT64_C(0x4000)
#define KEYWORD_EXCEPTION UINT64_C(0x8000)
#define KEYWORD_THREADING UINT64_C(0x10000)
#define KEYWORD_WAIT_HANDLE UINT64_C(0x40000000000)
#define KEYWORD_ALLOCATION_SAMPLING UINT64_C(0x80000000000)

enum { LEVEL_INFORMATIONAL = 4, LEVEL_VERBOSE = 5 };

static const uint16_t provider_name[] = u"Microsoft-Windows-DotNETRuntime";

/* Starts the session for all requested events but waits. */
static hresult begin_most(struct object *info, const struct begin_request *wanted, uint32_t alloc_means,
                          uint64_t *session) {
    uint32_t events = wanted->events;
    struct provider_config provider = {.name = provider_name, .level = LEVEL_INFORMATIONAL};
    if ((events & WANT_ALLOC) && alloc_means == ALLOC_SAMPLED) provider.keywords |= KEYWORD_ALLOCATION_SAMPLING;
    if ((events & WANT_ALLOC) && alloc_means == ALLOC_TICK) {
        provider.keywords |= KEYWORD_GC;
        provider.level = LEVEL_VERBOSE;
    }
    if (events & WANT_EXCEPTION) provider.keywords |= KEYWORD_EXCEPTION;
    if (events & WANT_CONTENTION) provider.keywords |= KEYWORD_CONTENTION;
    if (events & WANT_THREAD) provider.keywords |= KEYWORD_THREADING;
    if ((events & WANT_GC) || (wanted->flags & BEGIN_HANDLES)) provider.keywords |= KEYWORD_GC;
    return provider.keywords ? event_pipe_start(info, &provider, session) : S_OK;
}

/*
 * Starts the sessions for the requested events. Those of waits are verbose and have a session of
 * their own: in one session the other keywords would be verbose, too, and some of their verbose
 * events are raised for every work item of the thread pool. Waits for locks come with ContentionStart,
 * which says which lock it is.
 */
hresult event_pipe_begin(struct object *info, const struct begin_request *wanted, uint32_t alloc_means,
                         struct event_pipe *sessions) {
    uint32_t events = wanted->events;
    struct provider_config waits = {
        .name = provider_name, .level = LEVEL_VERBOSE, .keywords = KEYWORD_WAIT_HANDLE};
    if (!(events & WANT_CONTENTION)) waits.keywords |= KEYWORD_CONTENTION;
    *sessions = (struct event_pipe){0};
    hresult hr = begin_most(info, wanted, alloc_means, &sessions->most);
    if (hr == S_OK && (events & WANT_WAIT)) hr = event_pipe_start(info, &waits, &sessions->waits);
    if (hr != S_OK) event_pipe_end(info, sessions);
    return hr;
}

void event_pipe_end(struct object *info, struct event_pipe *sessions) {
    if (sessions->waits) event_pipe_stop(info, sessions->waits);
    if (sessions->most) event_pipe_stop(info, sessions->most);
    *sessions = (struct event_pipe){0};
}

/* A payload. `ok` is false once a read went beyond its end. */
struct payload {
    const uint8_t *at;
    size_t left;
    bool ok;
};

static void take(struct payload *p, void *out, size_t size) {
    p->ok = p->ok && size <= p->left;
    if (!p->ok) return;
    if (out) memcpy(out, p->at, size);
    p->at += size;
    p->left -= size;
}

static void skip(struct payload *p, size_t size) {
    take(p, 0, size);
}

static uint16_t u16(struct payload *p) {
    uint16_t v = 0;
    take(p, &v, sizeof v);
    return v;
}

static uint32_t u32(struct payload *p) {
    uint32_t v = 0;
    take(p, &v, sizeof v);
    return v;
}

static uint64_t u64(struct payload *p) {
    uint64_t v = 0;
    take(p, &v, sizeof v);
    return v;
}

static double f64(struct payload *p) {
    double v = 0;
    take(p, &v, sizeof v);
    return v;
}

static void skip_string(struct payload *p) {
    for (uint16_t c = 1; c && p->ok;) take(p, &c, sizeof c);
}

enum { CLR_INSTANCE = 2 /* bytes: ClrInstanceID, in every event */ };

static void allocation_sampled(struct payload *p) {
    skip(p, 4 + CLR_INSTANCE); /* kind */
    id class = u64(p);
    skip_string(p);
    uint64_t address = u64(p), size = u64(p);
    if (p->ok) events_alloc(class, size, 0, address);
}

static void allocation_tick(struct payload *p) {
    skip(p, 4 + 4 + CLR_INSTANCE); /* amount in 32 bits, kind */
    uint64_t amount = u64(p);
    id class = u64(p);
    skip_string(p);
    skip(p, 4); /* heap */
    uint64_t address = u64(p), size = u64(p);
    if (p->ok) events_alloc(class, size, amount, address);
}

static struct text text(struct payload *p) {
    const uint8_t *begin = p->at;
    skip_string(p);
    return (struct text){.at = begin, .units = p->ok ? (size_t)(p->at - begin) / sizeof(uint16_t) - 1 : 0};
}

/* The message is the object's field _message, not what its type's property Message returns. */
static void exception_thrown(struct payload *p) {
    struct thrown t = {.name = text(p), .message = text(p)};
    skip(p, 8 + 4); /* instruction pointer, HRESULT */
    t.flags = u16(p);
    if (p->ok) events_exception_thrown(&t);
}

static void catch_start(struct payload *p) {
    skip(p, 8); /* instruction pointer */
    id function = u64(p);
    if (p->ok) events_catch_start(function);
}

static void contention_start(struct payload *p) {
    skip(p, 1 + CLR_INSTANCE); /* flags: they do not distinguish kinds of locks */
    uint64_t lock = u64(p);
    uint64_t object = u64(p);
    uint64_t owner = u64(p);
    if (p->ok) events_contention_start(lock, object, owner);
}

static void contention_stop(struct payload *p) {
    skip(p, 1 + CLR_INSTANCE);
    double ns = f64(p);
    if (p->ok && ns >= 0 && ns < 1e18) events_contention_stop((uint64_t)ns);
}

static void wait_start(struct payload *p) {
    enum { MONITOR_WAIT = 1 };
    uint8_t source = 0;
    take(p, &source, sizeof source);
    uint64_t object = u64(p);
    if (p->ok) events_wait_start(source == MONITOR_WAIT, object);
}

static void thread_creating(struct payload *p) {
    id thread = u64(p);
    if (!p->ok) return;
    events_seen(EVENT_THREAD_STARTING);
    events_stack(EVENT_THREAD_STARTING, VALUES(thread));
}

static void gc_triggered(struct payload *p) {
    uint32_t reason = u32(p);
    if (!p->ok) return;
    events_seen(EVENT_GC_TRIGGERED);
    events_stack(EVENT_GC_TRIGGERED, VALUES(reason));
}

/* Events without a stack, whose first fields are numbers of 32 bits. */
static void numbers(struct payload *p, enum event_type type, int count) {
    struct values values = VALUES(0);
    for (int i = 0; i < count; i++) values.v[i] = u32(p);
    if (!p->ok) return;
    if (type == EVENT_SUSPEND_BEGIN || type == EVENT_RESTART_END) values.v[3] = events_dropped();
    events_seen(type);
    events_note(type, values);
}

static void collection_event(uint32_t event, struct payload *p) {
    switch (event) {
    case EVENT_ID_GC_START: numbers(p, EVENT_GC_START, 4); break;
    case EVENT_ID_GC_END: numbers(p, EVENT_GC_END, 2); break;
    }
}

static void gc_event(uint32_t event, struct payload *p) {
    switch (event) {
    case EVENT_ID_GC_TRIGGERED: gc_triggered(p); break;
    case EVENT_ID_SUSPEND_BEGIN: numbers(p, EVENT_SUSPEND_BEGIN, 2); break;
    case EVENT_ID_SUSPEND_END: numbers(p, EVENT_SUSPEND_END, 0); break;
    case EVENT_ID_RESTART_END: numbers(p, EVENT_RESTART_END, 0); break;
    }
}

static void exception_event(uint32_t event, struct payload *p) {
    switch (event) {
    case EVENT_ID_EXCEPTION_THROWN: exception_thrown(p); break;
    case EVENT_ID_EXCEPTION_CATCH_START: catch_start(p); break;
    case EVENT_ID_EXCEPTION_CATCH_STOP: events_catch_stop(); break;
    case EVENT_ID_EXCEPTION_FILTER_START: events_filter_start(); break;
    case EVENT_ID_EXCEPTION_FILTER_STOP: events_filter_stop(); break;
    }
}

hresult on_event_pipe_event_delivered(struct object *self, uintptr_t provider, uint32_t event, uint32_t version,
                                      uint32_t metadata_size, const uint8_t *metadata,
                                      uint32_t size, const uint8_t *data) {
    (void)self;
    (void)provider;
    (void)metadata_size;
    (void)metadata;
    struct payload p = {.at = data, .left = size, .ok = true};
    /* Every session has an event 1 of EventPipe's own provider, too, whose version is 0. */
    if (event == EVENT_ID_GC_START && version == 0) return S_OK;
    if (events_of_collections()) collection_event(event, &p);
    if (events_wanted(WANT_GC)) gc_event(event, &p);
    if (events_wanted(WANT_EXCEPTION)) exception_event(event, &p);
    switch (event) {
    case EVENT_ID_ALLOCATION_SAMPLED:
        if (events_wanted(WANT_ALLOC)) allocation_sampled(&p);
        break;
    case EVENT_ID_ALLOCATION_TICK:
        if (events_wanted(WANT_ALLOC) && version >= 4) allocation_tick(&p);
        break;
    case EVENT_ID_CONTENTION_START:
        if (events_wanted(WANT_CONTENTION | WANT_WAIT) && version >= 2) contention_start(&p);
        break;
    case EVENT_ID_CONTENTION_STOP:
        if (events_wanted(WANT_CONTENTION | WANT_WAIT) && version >= 1) contention_stop(&p);
        break;
    case EVENT_ID_WAIT_START:
        if (events_wanted(WANT_WAIT)) wait_start(&p);
        break;
    case EVENT_ID_WAIT_STOP:
        if (events_wanted(WANT_WAIT)) events_wait_stop();
        break;
    case EVENT_ID_THREAD_CREATING:
        if (events_wanted(WANT_THREAD)) thread_creating(&p);
        break;
    }
    return S_OK;
}
