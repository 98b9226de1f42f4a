/*
 * A session: one reader, from the connection to its end.
 *
 * The session has a thread of its own, which is the only one that calls the CLR
 * except from within a callback. Whatever happens to the reader, that thread
 * resumes the runtime if it is suspended, and then detaches the agent.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

enum {
    HOLD_LIMIT_MS = 10000, /* longest suspension */
    REPLY_LIMIT_MS = 5000, /* for a reader to take a reply while the runtime runs */
    DETACH_MS = 1, /* what the CLR is told to expect; its own least wait is longer */
    SHUTDOWN_LIMIT_MS = 2000,
    THREAD_STACK = 1 << 20,
};

static struct {
    atomic_int holders; /* the CLR and the session's thread; 0: there is no session */
    atomic_bool ending; /* the runtime is shutting down: no further calls */
    atomic_bool calling; /* the session's thread may be in a call into the CLR */
    struct object *info;
    int fd;
    bool attached;
    bool suspended;
    bool expired; /* the last suspension ended because time was up */
    uint64_t deadline; /* of the suspension */
    struct walk walk;
} session = {.fd = -1};

static uint64_t in_ms(uint64_t ms) {
    return now_ns() + ms * 1000000u;
}

/* Whether to call the CLR; the counterpart is leave_clr. Together with
 * session_shutdown this is Dekker's handshake: each side raises its flag before
 * it looks at the other's. */
static bool enter_clr(void) {
    atomic_store(&session.calling, true);
    if (!atomic_load(&session.ending)) return true;
    atomic_store(&session.calling, false);
    return false;
}

static void leave_clr(void) {
    atomic_store(&session.calling, false);
}

static bool send_message(uint32_t type, const void *payload, size_t length, uint64_t deadline) {
    struct header h = {.type = type, .length = (uint32_t)length};
    return io_write(session.fd, &h, sizeof h, deadline) && io_write(session.fd, payload, length, deadline);
}

/* The flag `calling` stays up while the runtime is suspended. */
static hresult resume(void) {
    session.suspended = false;
    hresult hr = resume_runtime(session.info);
    leave_clr();
    return hr;
}

static bool reply_walk(uint64_t deadline) {
    struct walk *w = &session.walk;
    size_t threads = w->reply.threads * sizeof *w->threads, frames = w->reply.frames * sizeof *w->frames;
    struct header h = {.type = MSG_WALKED, .length = (uint32_t)(sizeof w->reply + threads + frames)};
    return io_write(session.fd, &h, sizeof h, deadline) && io_write(session.fd, &w->reply, sizeof w->reply, deadline) &&
           io_write(session.fd, w->threads, threads, deadline) && io_write(session.fd, w->frames, frames, deadline);
}

/* Of a runtime that is suspended already this is one more walk; the time that it
 * may stay suspended is not prolonged. */
static bool serve_walk(const struct walk_request *request) {
    if (session.suspended) {
        walk_all(session.info, &session.walk);
        return reply_walk(session.deadline);
    }
    session.expired = false;
    if (!enter_clr()) {
        session.walk.reply = (struct walk_reply){.result = CORPROF_E_RUNTIME_UNINITIALIZED};
        return reply_walk(in_ms(REPLY_LIMIT_MS));
    }
    uint64_t hold = request->hold_ms < HOLD_LIMIT_MS ? request->hold_ms : HOLD_LIMIT_MS;
    if (walk_suspend(session.info, &session.walk) != S_OK) {
        leave_clr();
        return reply_walk(in_ms(REPLY_LIMIT_MS));
    }
    session.suspended = true;
    session.deadline = in_ms(hold);
    return reply_walk(session.deadline);
}

static bool serve_resume(void) {
    struct resume_reply reply = {.result = CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, .expired = session.expired};
    if (session.suspended) reply.result = resume();
    return send_message(MSG_RESUMED, &reply, sizeof reply, in_ms(REPLY_LIMIT_MS));
}

/*
 * Asks the CLR to let the agent go. If it agrees, the session belongs to
 * session_detached from then on, which the CLR calls when none of its threads is
 * in the agent any more. Otherwise the agent stays loaded and does nothing.
 */
static void detach(void) {
    hresult hr = E_FAIL;
    if (enter_clr()) {
        hr = request_profiler_detach(session.info, DETACH_MS);
        leave_clr();
    }
    if (hr != S_OK) close(session.fd);
    atomic_fetch_sub(&session.holders, 1);
}

/* Reads and serves one request; false ends the session. */
static bool serve(void) {
    uint64_t deadline = session.suspended ? session.deadline : FOREVER;
    if (!io_readable(session.fd, deadline)) {
        if (!session.suspended) return false;
        session.expired = true;
        resume();
        return true;
    }
    struct header h;
    struct walk_request request;
    if (!session.suspended) deadline = in_ms(REPLY_LIMIT_MS);
    if (!io_read(session.fd, &h, sizeof h, deadline)) return false;
    switch (h.type) {
    case MSG_WALK:
        return h.length == sizeof request && io_read(session.fd, &request, sizeof request, deadline) && serve_walk(&request);
    case MSG_RESUME:
        return h.length == 0 && serve_resume();
    }
    return false; /* MSG_DETACH, or none that is known: the end in either case */
}

static void *run(void *unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "clrsnap-agent");
    struct hello hello = {
        .version = PROTOCOL_VERSION, .pid = (uint32_t)getpid(), .attached = session.attached, .hold_limit_ms = HOLD_LIMIT_MS};
    if (send_message(MSG_HELLO, &hello, sizeof hello, in_ms(REPLY_LIMIT_MS))) {
        while (serve()) continue;
    }
    if (session.suspended) resume();
    detach();
    return 0;
}

/*
 * Starts the session's thread, without which the agent detaches. The thread takes
 * no signal that is meant for the program, whose handlers belong on the program's
 * threads. Those that a thread causes itself are not blocked: the CLR's walk
 * recovers from faults by them.
 */
void session_start(void) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&blocked, own[i]);

    pthread_attr_t attributes;
    pthread_t thread;
    atomic_fetch_add(&session.holders, 1);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int failed = pthread_create(&thread, &attributes, run, 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    pthread_attr_destroy(&attributes);
    if (failed) detach();
}

static void session_close(void) {
    if (session.info) release(session.info);
    if (session.fd >= 0) close(session.fd);
    session.info = 0;
    session.fd = -1;
    atomic_fetch_sub(&session.holders, 1);
}

/* Connects to the reader. If nobody is there, the agent does not stay. */
hresult session_open(struct object *unknown, const char *path, size_t length, bool attached) {
    static const struct guid info10 = {0x2f1b5152, 0xc869, 0x40c9, {0xaa, 0x5f, 0x3a, 0xbe, 0x02, 0x6b, 0xd7, 0x20}};
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&session.holders, &nobody, 1)) return CORPROF_E_PROFILER_CANCEL_ACTIVATION;
    session.attached = attached;
    session.suspended = session.expired = false;
    hresult hr = walk_allocate(&session.walk) ? S_OK : E_OUTOFMEMORY;
    if (hr == S_OK) hr = query_interface(unknown, &info10, &session.info);
    if (hr == S_OK) hr = set_event_mask(session.info, COR_PRF_ENABLE_STACK_SNAPSHOT);
    if (hr == S_OK && (session.fd = io_connect(path, length)) < 0) hr = CORPROF_E_PROFILER_CANCEL_ACTIVATION;
    if (hr != S_OK) session_close();
    return hr;
}

/* Detached: the CLR calls nothing here any more, and waits until this returns. */
void session_detached(void) {
    send_message(MSG_DETACHED, 0, 0, now_ns());
    session_close();
}

/*
 * The runtime is shutting down; once this returns, its functions must not be
 * called. A reader that holds it suspended is hung up on.
 */
void session_shutdown(void) {
    atomic_store(&session.ending, true);
    if (atomic_load(&session.calling)) shutdown(session.fd, SHUT_RDWR); /* its thread is there, so fd is open */
    uint64_t deadline = in_ms(SHUTDOWN_LIMIT_MS);
    while (atomic_load(&session.calling) && now_ns() < deadline) {
        struct timespec ms = {.tv_nsec = 1000000};
        nanosleep(&ms, 0);
    }
}
