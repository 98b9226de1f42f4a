/*
 * A session: one reader, from the connection to its end.
 *
 * The session has a thread of its own, which is the only one that calls the CLR
 * except from within a callback. Whatever happens to the reader, that thread
 * resumes the runtime if it is suspended, and then detaches the agent.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "events.h"

enum {
    HOLD_LIMIT_MS = 10000, /* longest suspension */
    REPLY_LIMIT_MS = 5000, /* for a reader to take a reply while the runtime runs */
    BEGIN_LIMIT_MS = 2000, /* for a reader to say what it wants; the program waits for it */
    LAST_LOOK_MS = 100, /* for a reader to read the living process once more, when it ends */
    /* The time for detaching that the agent announces to the CLR. The CLR checks whether
     * the agent can be detached after this time, and after twice this time, but waits at
     * least 0.3 s before each check; later it checks only every 5 s
     * (src/coreclr/vm/profdetach.cpp). */
    DETACH_MS = 300,
    SHUTDOWN_LIMIT_MS = 2000,
    THREAD_STACK = 1 << 20,
    PATH_LIMIT = 256,
};

static struct {
    atomic_int holders; /* the CLR and the session's thread; 0: there is no session */
    atomic_bool ending; /* the runtime is shutting down: no further calls */
    atomic_bool calling; /* the session's thread may be in a call into the CLR */
    struct object *info;
    int fd;
    bool attached;
    bool suspended;
    bool expired; /* the last suspension ended because its time was over */
    uint64_t deadline; /* of the suspension */
    struct begin_reply begun;
    atomic_bool hung_up; /* by the reader */
    struct walk walk;
} session = {.fd = -1};

static uint64_t in_ms(uint64_t ms) {
    return now_ns() + ms * 1000000u;
}

static void sleep_ms(void) {
    struct timespec ms = {.tv_nsec = 1000000};
    nanosleep(&ms, 0);
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

/* If the runtime is suspended already, it is walked once more; the time that it may stay
 * suspended is not prolonged. */
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

/* It works also if a forked child of the program, before its execve, has the connection
 * as well. */
static void hang_up(void) {
    shutdown(session.fd, SHUT_RDWR);
    close(session.fd);
    session.fd = -1;
}

static bool serve_free(uint32_t length) {
    uint32_t slots[MAX_FREED];
    if (length > sizeof slots || length % sizeof *slots || !handles_wanted()) return false;
    if (!io_read(session.fd, slots, length, in_ms(REPLY_LIMIT_MS))) return false;
    if (!enter_clr()) return true;
    for (uint32_t i = 0; i < length / sizeof *slots; i++) handle_destroy(slots[i]);
    leave_clr();
    return true;
}

static bool serve_collect(void) {
    struct collect_reply reply = {.result = CORPROF_E_UNSUPPORTED_CALL_SEQUENCE};
    uint64_t start = now_ns();
    if (!session.suspended && enter_clr()) {
        reply.result = force_gc(session.info);
        leave_clr();
    }
    reply.took_ns = now_ns() - start;
    return send_message(MSG_COLLECTED, &reply, sizeof reply, in_ms(REPLY_LIMIT_MS));
}

/*
 * Asks the CLR to detach the agent. If it agrees, the session belongs to
 * session_detached from then on, which the CLR calls when none of its threads is
 * in the agent any more. Otherwise the agent stays loaded and does nothing.
 */
static void detach(void) {
    hresult hr = E_FAIL;
    events_quiet();
    if (enter_clr()) {
        events_stop();
        hr = request_profiler_detach(session.info, DETACH_MS);
        leave_clr();
    }
    if (hr != S_OK) {
        events_abandon();
        send_message(MSG_DETACHED, 0, 0, now_ns());
        hang_up();
    }
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
        return h.length == sizeof request && io_read(session.fd, &request, sizeof request, deadline) &&
               serve_walk(&request);
    case MSG_RESUME:
        return h.length == 0 && serve_resume();
    case MSG_FREE:
        return !session.suspended && serve_free(h.length);
    case MSG_COLLECT:
        return h.length == 0 && serve_collect();
    }
    return false; /* MSG_DETACH, or an unknown message: both end the session */
}

static void *run(void *unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "clrsnap-agent");
    while (serve()) continue;
    atomic_store(&session.hung_up, true);
    if (session.suspended) resume();
    detach();
    return 0;
}

/*
 * Starts the session's thread. It blocks the signals that are meant for the program,
 * whose handlers must run on the program's threads. Signals that a thread causes itself
 * are not blocked: the CLR's walk uses them to recover from faults.
 */
static hresult start_thread(void) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&blocked, own[i]);

    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int failed = pthread_create(&thread, &attributes, run, 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    pthread_attr_destroy(&attributes);
    return failed ? E_FAIL : S_OK;
}

static bool send_begun(void) {
    return send_message(MSG_BEGUN, &session.begun, sizeof session.begun, in_ms(REPLY_LIMIT_MS));
}

/* Sends the hello, and receives the request; *memory is a file descriptor, or -1. */
static bool introduce(struct begin_request *request, int *memory) {
    struct hello hello = {
        .version = PROTOCOL_VERSION, .pid = (uint32_t)getpid(), .attached = session.attached,
        .hold_limit_ms = HOLD_LIMIT_MS};
    struct header h;
    uint64_t deadline = in_ms(BEGIN_LIMIT_MS);
    return send_message(MSG_HELLO, &hello, sizeof hello, deadline) &&
           io_read_with_fd(session.fd, &h, sizeof h, memory, deadline) &&
           h.type == MSG_BEGIN && h.length == sizeof *request &&
           io_read(session.fd, request, sizeof *request, deadline);
}

static hresult prepare(struct object *unknown, const struct begin_request *request, int memory) {
    static const struct guid info13 = {0x6e6c7ee2, 0x0701, 0x4ec2, {0x9d, 0x29, 0x2e, 0x87, 0x33, 0xb6, 0x69, 0x34}};
    static const struct guid info12 = {0x27b24ccd, 0x1cb1, 0x47c5, {0x96, 0xee, 0x98, 0x19, 0x0d, 0xc3, 0x09, 0x59}};
    session.begun = (struct begin_reply){0};
    hresult hr = query_interface(unknown, request->flags & BEGIN_HANDLES ? &info13 : &info12, &session.info);
    if (hr == S_OK) return events_prepare(session.info, request, memory, session.attached, &session.begun);
    session.begun.step = STEP_INTERFACE;
    return session.begun.result = hr;
}

/* Connects to the reader. If there is no reader, or it sends no request, the agent does
 * not stay. */
static bool converse(struct object *unknown, const char *path, size_t length) {
    struct begin_request request;
    int memory = -1;
    session.fd = io_connect(path, length);
    bool wanted = session.fd >= 0 && introduce(&request, &memory);
    bool prepared = wanted && prepare(unknown, &request, memory) == S_OK;
    if (memory >= 0) close(memory);
    if (wanted && !prepared) send_begun();
    return prepared;
}

static void session_close(void) {
    events_close();
    walk_free(&session.walk);
    if (session.info) release(session.info);
    if (session.fd >= 0) hang_up();
    session.info = 0;
    atomic_fetch_sub(&session.holders, 1);
}

/*
 * Opens the agent's own library, and never closes it. Its file lies beside the socket,
 * and is removed once the agent has connected. Through the descriptor, a later reader can
 * make the runtime load the same file again, which maps no further copy of it.
 */
static void keep_library(const char *socket_path, size_t length) {
    static const char name[] = "libclrsnap-agent.so";
    static int library = -1;
    char path[PATH_LIMIT];
    while (length > 0 && socket_path[length - 1] != '/') length--;
    if (library >= 0 || length == 0 || length + sizeof name > sizeof path) return;
    memcpy(path, socket_path, length);
    memcpy(path + length, name, sizeof name);
    library = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

/* Does everything that does not need the runtime; session_begin does the rest. */
bool session_open(struct object *unknown, const char *path, size_t length, bool attached) {
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&session.holders, &nobody, 1)) return false;
    session.attached = attached;
    session.suspended = session.expired = false;
    atomic_store(&session.hung_up, false);
    keep_library(path, length);
    if (walk_allocate(&session.walk) && converse(unknown, path, length)) return true;
    session_close();
    return false;
}

/*
 * Begins what was requested, on a thread on which the runtime calls the agent, and
 * starts the session's thread. If that fails, the reader is told, and the agent leaves: in
 * a running process it asks to be detached, in a starting one its initialisation fails.
 */
bool session_begin(void) {
    atomic_fetch_add(&session.holders, 1);
    hresult hr = events_start(&session.begun);
    if (send_begun() && hr == S_OK && start_thread() == S_OK) return true;
    if (session.attached) {
        detach();
        return false;
    }
    events_stop();
    session_close();
    atomic_fetch_sub(&session.holders, 1);
    return false;
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
    events_quiet();
    if (atomic_load(&session.calling)) shutdown(session.fd, SHUT_RDWR); /* its thread is there, so fd is open */
    uint64_t deadline = in_ms(SHUTDOWN_LIMIT_MS);
    while (atomic_load(&session.calling) && now_ns() < deadline) sleep_ms();
    deadline = in_ms(LAST_LOOK_MS);
    while (!atomic_load(&session.hung_up) && !events_taken() && now_ns() < deadline) sleep_ms();
}
