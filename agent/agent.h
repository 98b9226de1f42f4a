/* What the files of the agent share. README.md has the rules. */
#ifndef CLRSNAP_AGENT_H
#define CLRSNAP_AGENT_H

#include <stdbool.h>
#include <stddef.h>

#include "arch.h"
#include "com.h"
#include "protocol.h"

/* profiler.c: the one object that implements ICorProfilerCallback11. */
extern struct object profiler;
bool same_guid(const struct guid *a, const struct guid *b);

/* session.c: one reader, from the connection to its end. */
bool session_open(struct object *info, const char *socket_path, size_t length, bool attached);
bool session_begin(void);
void session_shutdown(void);
void session_detached(void);

/* walk.c: the CLR's own walk of all its threads. */
struct walk {
    struct walk_reply reply;
    struct thread_record *threads;
    struct frame_record *frames;
};

bool walk_allocate(struct walk *w);
void walk_free(struct walk *w);
hresult walk_suspend(struct object *info, struct walk *w);
hresult walk_all(struct object *info, struct walk *w);

/* Address space; its pages take memory only once they are written to. */
void *reserve(size_t size);
void unreserve(void *p, size_t size);

/* memory.c: memory of this process that may not be there. */
enum { MOST_PEEKED = 16 };

struct piece {
    uint64_t address;
    size_t size;
};

size_t peek_most(uint64_t address, void *out, size_t size);
bool peek_bytes(uint64_t address, void *out, size_t size);
bool peek(uint64_t address, uint64_t *value);
bool peek_pieces(const struct piece *pieces, size_t count, void *out);

/* stack.c: the calling thread's own stack. */
enum { MOST_ROOTS = 16 };

struct stack {
    uint8_t *frames;
    uint32_t buffer;
    uint32_t count;
    size_t size; /* of all frames, and of what was added after them, in bytes */
    hresult result; /* of DoStackSnapshot; S_OK if the walk was cut */
    bool cut; /* the stack has more frames than fit */
    bool chain; /* the words of a chain were added */
    const struct chain_rule *rules;
    id thread; /* whose stack it is; 0: it is not known to the runtime */
    uint32_t roots;
    struct chain_root {
        uint64_t ip;
        uint64_t slot; /* the argument's address; 0: it is in a register */
        uint64_t argument;
        uint32_t frame;
        bool within; /* the argument must be in the frame, whose end is not known yet */
    } root[MOST_ROOTS];
};

/* What is added after the frames at most: the words of a chain, and what an exception has besides. */
enum {
    MOST_CHAIN = sizeof(uint64_t) + MOST_CHAIN_WORDS * sizeof(struct chain_word),
    MAX_ADDED = MOST_CHAIN + sizeof(struct short_frame) + (MAX_NAME_UNITS + MAX_MESSAGE_UNITS) * sizeof(uint16_t),
};

bool stacks_allocate(uint32_t frames, bool registers);
void stacks_free(void);
bool stack_claim(struct stack *s);
void stack_walk(struct stack *s, struct object *info, const struct chain_rule *rules);
bool stack_unmoved(const struct stack *s, struct object *info);
void stack_frames_only(struct stack *s);
void stack_add(struct stack *s, const void *p, size_t size);
void stack_pad(struct stack *s);
void stack_release(struct stack *s);

/* chain.c: what awaits the async methods of a stack. */
struct ring;

bool chain_possible(const struct ring *r);
void chain_root(struct stack *s, uint64_t ip, const uint8_t *context, uint32_t context_size);
void chain_roots_end(struct stack *s);
void chain_add(struct stack *s, const struct ring *r);

/* handles.c: weak handles of sampled objects. */
bool handles_open(struct object *info, uint32_t capacity);
bool handles_wanted(void);
bool handle_make(id object, struct handle_record *out);
void handle_destroy(uint32_t slot);
void handles_close_all(void);
void handles_free(void);

/* io.c: a socket with deadlines, all on the monotonic clock in nanoseconds. */
#define FOREVER UINT64_MAX

uint64_t now_ns(void);
int io_connect(const char *path, size_t length);
bool io_readable(int fd, uint64_t deadline);
bool io_read(int fd, void *buffer, size_t length, uint64_t deadline);
bool io_read_with_fd(int fd, void *buffer, size_t length, int *received, uint64_t deadline);
bool io_write(int fd, const void *buffer, size_t length, uint64_t deadline);

#endif
