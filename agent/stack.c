/*
 * The calling thread's own stack, into one of a few buffers.
 *
 * The buffers are allocated in advance, and claimed for the time of one walk. There are
 * as many as fit into POOL_SIZE, not one for each thread: a walk takes some
 * microseconds, so few threads need one at a time, however many there are.
 */
#include <string.h>

#include "agent.h"

enum { POOL_SIZE = 512 << 10, MOST_BUFFERS = 64 };

static struct {
    uint8_t *memory;
    uint64_t free; /* a bit for each buffer */
    uint32_t frames; /* that fit into each of them */
    uint32_t frame_size;
    uint32_t size; /* of a buffer: frames, and what is added after them */
} pool;

bool stacks_allocate(uint32_t frames, bool registers) {
    pool.memory = reserve(POOL_SIZE);
    if (!pool.memory) return false;
    pool.frames = frames;
    pool.frame_size = registers ? sizeof(struct frame_record) : sizeof(struct short_frame);
    pool.size = pool.frames * pool.frame_size + MAX_ADDED;
    uint32_t buffers = POOL_SIZE / pool.size;
    __atomic_store_n(&pool.free, buffers < MOST_BUFFERS ? (UINT64_C(1) << buffers) - 1 : UINT64_MAX, __ATOMIC_RELEASE);
    return true;
}

void stacks_free(void) {
    unreserve(pool.memory, POOL_SIZE);
    pool.memory = 0;
}

/* Claims a buffer; false if all are in use. */
bool stack_claim(struct stack *s) {
    uint64_t free = __atomic_load_n(&pool.free, __ATOMIC_RELAXED);
    do {
        if (!free) return false;
    } while (!__atomic_compare_exchange_n(&pool.free, &free, free & (free - 1), true,
                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    *s = (struct stack){.buffer = (uint32_t)__builtin_ctzll(free)};
    s->frames = pool.memory + (size_t)s->buffer * pool.size;
    return true;
}

void stack_release(struct stack *s) {
    __atomic_fetch_or(&pool.free, UINT64_C(1) << s->buffer, __ATOMIC_RELEASE);
}

static hresult on_frame(id function, uintptr_t ip, id frame_info, uint32_t context_size, uint8_t *context, void *data) {
    (void)frame_info;
    struct stack *s = data;
    if (s->count == pool.frames) {
        s->cut = true;
        return E_FAIL; /* ends the walk */
    }
    if (s->rules) chain_root(s, ip, context, context_size);
    uint32_t index = s->count++;
    if (!s->frames) return S_OK; /* only the roots are wanted */
    uint8_t *place = s->frames + (size_t)index * pool.frame_size;
    if (pool.frame_size == sizeof(struct short_frame)) {
        *(struct short_frame *)place = (struct short_frame){.function = function, .ip = ip};
        return S_OK;
    }
    struct frame_record *f = (struct frame_record *)place;
    *f = (struct frame_record){.function = function, .ip = ip};
    copy_registers(f, context, context_size);
    return S_OK;
}

/* rules are those of the frames whose arguments are wanted; 0: none are. */
void stack_walk(struct stack *s, struct object *info, const struct chain_rule *rules) {
    bool registers = rules || pool.frame_size == sizeof(struct frame_record);
    uint32_t flags = registers ? COR_PRF_SNAPSHOT_REGISTER_CONTEXT : 0;
    s->rules = rules;
    s->result = do_stack_snapshot(info, 0, on_frame, flags, s);
    chain_roots_end(s);
    if (s->cut) s->result = S_OK;
    s->size = s->count * pool.frame_size;
}

/* Walks the stack once more, and compares the arguments of the frames: the garbage collector updates them. */
bool stack_unmoved(const struct stack *s, struct object *info) {
    struct stack again = {.rules = s->rules, .thread = s->thread};
    do_stack_snapshot(info, 0, on_frame, COR_PRF_SNAPSHOT_REGISTER_CONTEXT, &again);
    chain_roots_end(&again);
    bool same = again.roots == s->roots;
    for (uint32_t i = 0; i < s->roots && same; i++) same = again.root[i].argument == s->root[i].argument;
    return same;
}

/* Takes away what was added after the frames. */
void stack_frames_only(struct stack *s) {
    s->size = s->count * pool.frame_size;
    s->chain = false;
}

/* Adds something after the frames; MAX_ADDED bytes at most in all. */
void stack_add(struct stack *s, const void *p, size_t size) {
    memcpy(s->frames + s->size, p, size);
    s->size += size;
}

/* Adds zeros up to a multiple of 8. */
void stack_pad(struct stack *s) {
    size_t padded = (s->size + 7) & ~(size_t)7;
    memset(s->frames + s->size, 0, padded - s->size);
    s->size = padded;
}
