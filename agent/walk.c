/*
 * The CLR's own walk of all its threads, into buffers that were made before.
 *
 * On Linux DoStackSnapshot walks another thread only while the whole runtime is
 * suspended, which SuspendRuntime does without a garbage collection.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "agent.h"

/* Address space only, until it is written to. */
enum { MAX_THREADS = 1 << 14, MAX_FRAMES = 1 << 18 };

/* Where AMD64's CONTEXT has its registers. Its size grows with the processor's
 * vector registers, these offsets do not (src/coreclr/pal/inc/pal.h). */
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

static void *reserve(size_t size) {
    void *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? 0 : p;
}

bool walk_allocate(struct walk *w) {
    if (!w->threads) w->threads = reserve(MAX_THREADS * sizeof *w->threads);
    if (!w->frames) w->frames = reserve(MAX_FRAMES * sizeof *w->frames);
    return w->threads && w->frames;
}

static uint64_t reg(const uint8_t *context, size_t offset) {
    uint64_t v;
    memcpy(&v, context + offset, sizeof v);
    return v;
}

/* Runs while the runtime is suspended: copies, and does nothing else. */
static hresult on_frame(id function, uintptr_t ip, id frame_info, uint32_t context_size, uint8_t *context, void *data) {
    (void)frame_info;
    struct walk *w = data;
    if (w->reply.frames == MAX_FRAMES) {
        w->reply.full = 1;
        return E_OUTOFMEMORY; /* ends this walk with CORPROF_E_STACKSNAPSHOT_ABORTED */
    }
    struct thread_record *t = &w->threads[w->reply.threads];
    struct frame_record *f = &w->frames[w->reply.frames++];
    memset(f, 0, sizeof *f);
    t->frames++;
    f->function = function;
    f->ip = ip;
    t->context_size = context ? context_size : 0;
    if (context && context_size >= CONTEXT_NEEDED) {
        f->context_ip = reg(context, CONTEXT_RIP);
        f->sp = reg(context, CONTEXT_RSP);
        f->bp = reg(context, CONTEXT_RBP);
        f->bx = reg(context, CONTEXT_RBX);
        f->r12 = reg(context, CONTEXT_R12);
        f->r13 = reg(context, CONTEXT_R13);
        f->r14 = reg(context, CONTEXT_R14);
        f->r15 = reg(context, CONTEXT_R15);
    }
    return S_OK;
}

static void walk_thread(struct object *info, struct walk *w, id thread) {
    if (w->reply.threads == MAX_THREADS) {
        w->reply.full = 1;
        return;
    }
    struct thread_record *t = &w->threads[w->reply.threads];
    memset(t, 0, sizeof *t);
    t->thread = thread;
    get_thread_info(info, thread, &t->os_id); /* 0 if it fails: a thread that has not started */
    t->result = do_stack_snapshot(info, thread, on_frame, COR_PRF_SNAPSHOT_REGISTER_CONTEXT, w);
    w->reply.threads++;
}

static hresult walk_threads(struct object *info, struct walk *w) {
    struct object *threads = 0;
    hresult hr = enum_threads(info, &threads);
    if (hr != S_OK) return hr < 0 ? hr : E_FAIL;
    for (;;) {
        id ids[64];
        uint32_t got = 0;
        hr = threads_next(threads, sizeof ids / sizeof *ids, ids, &got);
        for (uint32_t i = 0; i < got; i++) walk_thread(info, w, ids[i]);
        if (hr != S_OK || got == 0) break; /* S_FALSE: those were the last */
    }
    release(threads);
    return hr < 0 ? hr : S_OK;
}

/* Walks a runtime that is suspended. */
hresult walk_all(struct object *info, struct walk *w) {
    memset(&w->reply, 0, sizeof w->reply);
    uint64_t start = now_ns();
    hresult hr = walk_threads(info, w);
    if (hr != S_OK) w->reply.threads = w->reply.frames = 0;
    w->reply.walk_ns = now_ns() - start;
    w->reply.result = hr;
    return hr;
}

/*
 * Suspends the runtime and walks. The runtime stays suspended only if S_OK is
 * returned; it must be resumed on the same thread then.
 */
hresult walk_suspend(struct object *info, struct walk *w) {
    uint64_t start = now_ns();
    hresult hr = suspend_runtime(info);
    uint64_t took = now_ns() - start;
    if (hr != S_OK) {
        w->reply = (struct walk_reply){.result = hr < 0 ? hr : E_FAIL, .suspend_ns = took};
        return w->reply.result;
    }
    hr = walk_all(info, w);
    w->reply.suspend_ns = took;
    if (hr != S_OK) resume_runtime(info);
    return hr;
}
