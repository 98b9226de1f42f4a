/*
 * The CLR's own walk of all its threads, into buffers that were allocated in advance.
 *
 * On Linux DoStackSnapshot walks another thread only while the whole runtime is
 * suspended, which SuspendRuntime does without a garbage collection.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "agent.h"

/* The buffers take memory only where they are written to. */
enum { MAX_THREADS = 1 << 14, MAX_FRAMES = 1 << 18 };

/* Address space, whose pages take memory only once they are written to; 0 if there is none. */
void *reserve(size_t size) {
    void *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? 0 : p;
}

void unreserve(void *p, size_t size) {
    if (p) munmap(p, size);
}

bool walk_allocate(struct walk *w) {
    w->threads = reserve(MAX_THREADS * sizeof *w->threads);
    w->frames = reserve(MAX_FRAMES * sizeof *w->frames);
    return w->threads && w->frames;
}

void walk_free(struct walk *w) {
    unreserve(w->threads, MAX_THREADS * sizeof *w->threads);
    unreserve(w->frames, MAX_FRAMES * sizeof *w->frames);
    w->threads = 0;
    w->frames = 0;
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
    *f = (struct frame_record){.function = function, .ip = ip};
    t->frames++;
    t->context_size = context ? context_size : 0;
    copy_registers(f, context, context_size);
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
