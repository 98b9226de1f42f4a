/* What the files of the agent know of each other. README.md has the rules. */
#ifndef CLRSNAP_AGENT_H
#define CLRSNAP_AGENT_H

#include <stdbool.h>
#include <stddef.h>

#include "com.h"
#include "protocol.h"

/* profiler.c: the one object that implements ICorProfilerCallback11. */
extern struct object profiler;
bool same_guid(const struct guid *a, const struct guid *b);

/* session.c: one reader, from the connection to its end. */
hresult session_open(struct object *info, const char *socket_path, size_t length, bool attached);
void session_start(void);
void session_shutdown(void);
void session_detached(void);

/* walk.c: the CLR's own walk of all its threads. */
struct walk {
    struct walk_reply reply;
    struct thread_record *threads;
    struct frame_record *frames;
};

bool walk_allocate(struct walk *w);
hresult walk_suspend(struct object *info, struct walk *w);
hresult walk_all(struct object *info, struct walk *w);

/* io.c: a socket with deadlines, all on the monotonic clock in nanoseconds. */
#define FOREVER UINT64_MAX

uint64_t now_ns(void);
int io_connect(const char *path, size_t length);
bool io_readable(int fd, uint64_t deadline);
bool io_read(int fd, void *buffer, size_t length, uint64_t deadline);
bool io_write(int fd, const void *buffer, size_t length, uint64_t deadline);

#endif
