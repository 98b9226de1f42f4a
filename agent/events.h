/* Notifications: events.c publishes them, eventpipe.c reads those of EventPipe. */
#ifndef CLRSNAP_EVENTS_H
#define CLRSNAP_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "com.h"
#include "protocol.h"

/* What a record says besides its stack. */
struct values {
    uint64_t v[4];
};

/* A text in UTF-16. */
struct text {
    const void *at;
    size_t units;
};

/* What the runtime says of an exception. */
struct thrown {
    struct text name; /* of its type */
    struct text message;
    uint32_t flags;
};

#define VALUES(...) ((struct values){{__VA_ARGS__}})

bool events_wanted(uint32_t which);
bool events_of_collections(void);
void events_seen(enum event_type type);
void events_note(enum event_type type, struct values values);
void events_stack(enum event_type type, struct values values);
void events_alloc(id class, uint64_t size, uint64_t tick, uint64_t address);
void events_exception_thrown(const struct thrown *t);
void events_catch_start(id function);
void events_catch_stop(void);
uint64_t events_dropped(void);
void events_filter_start(void);
void events_filter_stop(void);
void events_contention_start(uint64_t lock, uint64_t object, uint64_t owner);
void events_contention_stop(uint64_t ns);
void events_wait_start(bool monitor, uint64_t object);
void events_wait_stop(void);

/* Sessions of EventPipe; 0: none. */
struct event_pipe {
    uint64_t most; /* all events but those of waits */
    uint64_t waits; /* which alone are verbose */
};

hresult event_pipe_begin(struct object *info, const struct begin_request *wanted, uint32_t alloc_means,
                         struct event_pipe *sessions);
void event_pipe_end(struct object *info, struct event_pipe *sessions);

/* The life of a subscription. */
hresult events_prepare(struct object *info, const struct begin_request *request,
                       int memory, bool attached, struct begin_reply *reply);
hresult events_start(struct begin_reply *reply);
void events_quiet(void);
void events_stop(void);
void events_close(void);
void events_abandon(void);
bool events_taken(void);

/* Notifications, in the profiler's table of functions. */
hresult on_object_allocated(struct object *self, id object, id class);
hresult on_thread_assigned_to_os_thread(struct object *self, id thread, uint32_t os_id);
hresult on_thread_destroyed(struct object *self, id thread);
hresult on_event_pipe_event_delivered(struct object *self, uintptr_t provider, uint32_t event, uint32_t version,
                                      uint32_t metadata_size, const uint8_t *metadata,
                                      uint32_t size, const uint8_t *data);

#endif
