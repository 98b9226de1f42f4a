/*
 * The part of COM and of the .NET profiling API that the agent uses.
 *
 * An interface is a pointer to an object whose first word points to a table of
 * functions; the first argument of each is the object. The order of the tables
 * is that of src/coreclr/inc/corprof.idl in dotnet/runtime, where each interface
 * continues the one that it extends. On Linux the calling convention is the
 * platform's own, an HRESULT is an int, and ULONG and DWORD are 32 bits wide
 * (src/coreclr/pal/inc/pal_mstypes.h).
 */
#ifndef CLRSNAP_COM_H
#define CLRSNAP_COM_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t hresult;
typedef uintptr_t id; /* ThreadID, FunctionID, …: an address in the runtime */

struct guid {
    uint32_t a;
    uint16_t b, c;
    uint8_t d[8];
};

typedef void (*slot)(void);

struct object {
    const slot *vtable;
};

/* corerror.h, and for the general ones winerror.h. */
#define S_OK ((hresult)0)
#define E_NOINTERFACE ((hresult)0x80004002)
#define E_POINTER ((hresult)0x80004003)
#define E_FAIL ((hresult)0x80004005)
#define E_INVALIDARG ((hresult)0x80070057)
#define E_OUTOFMEMORY ((hresult)0x8007000e)
#define CLASS_E_NOAGGREGATION ((hresult)0x80040110)
#define CLASS_E_CLASSNOTAVAILABLE ((hresult)0x80040111)
#define CORPROF_E_STACKSNAPSHOT_ABORTED ((hresult)0x80131361)
#define CORPROF_E_RUNTIME_UNINITIALIZED ((hresult)0x80131371)
#define CORPROF_E_PROFILER_CANCEL_ACTIVATION ((hresult)0x80131375)
#define CORPROF_E_UNSUPPORTED_CALL_SEQUENCE ((hresult)0x80131363)

/* COR_PRF_MONITOR and COR_PRF_HIGH_MONITOR. The two of objects can be requested only at
 * the start of the process, and prevent the profiler from being detached. */
#define COR_PRF_MONITOR_OBJECT_ALLOCATED 0x100u
#define COR_PRF_MONITOR_THREADS 0x200u
#define COR_PRF_ENABLE_OBJECT_ALLOCATED 0x800000u
#define COR_PRF_ENABLE_STACK_SNAPSHOT 0x10000000u
#define COR_PRF_HIGH_MONITOR_EVENT_PIPE 0x80u

#define COR_PRF_SNAPSHOT_REGISTER_CONTEXT 1u
#define COR_PRF_HANDLE_TYPE_WEAK 1

/* IUnknown */
enum { SLOT_QUERY_INTERFACE, SLOT_ADD_REF, SLOT_RELEASE };

/* IClassFactory */
enum { SLOT_CREATE_INSTANCE = 3, SLOT_LOCK_SERVER, SLOTS_CLASS_FACTORY };

/*
 * ICorProfilerCallback to ICorProfilerCallback11: 69 functions of the first after
 * the three of IUnknown, then 8, 3, 6, 1, 1, 1, 2, 1, 2 and 1. Only those that do
 * something have a name.
 */
enum {
    SLOT_INITIALIZE = 3,
    SLOT_SHUTDOWN = 4,
    SLOT_THREAD_DESTROYED = 30,
    SLOT_THREAD_ASSIGNED_TO_OS_THREAD = 31,
    SLOT_OBJECT_ALLOCATED = 50,
    SLOT_INITIALIZE_FOR_ATTACH = 80,
    SLOT_PROFILER_ATTACH_COMPLETE = 81,
    SLOT_PROFILER_DETACH_SUCCEEDED = 82,
    SLOT_EVENT_PIPE_EVENT_DELIVERED = 95,
    SLOT_LOAD_AS_NOTIFICATION_ONLY = 97,
    SLOTS_PROFILER_CALLBACK = 98
};

/* ICorProfilerInfo to ICorProfilerInfo13, which .NET 7 and later have. */
enum {
    SLOT_GET_THREAD_INFO = 12,
    SLOT_GET_CURRENT_THREAD_ID = 13,
    SLOT_FORCE_GC = 28,
    SLOT_DO_STACK_SNAPSHOT = 36,
    SLOT_REQUEST_PROFILER_DETACH = 58,
    SLOT_GET_RUNTIME_INFORMATION = 67,
    SLOT_ENUM_THREADS = 71,
    SLOT_GET_OBJECT_SIZE2 = 80,
    SLOT_SET_EVENT_MASK2 = 82,
    SLOT_SUSPEND_RUNTIME = 97,
    SLOT_RESUME_RUNTIME = 98,
    SLOT_EVENT_PIPE_START_SESSION = 101,
    SLOT_EVENT_PIPE_STOP_SESSION = 103,
    SLOT_CREATE_HANDLE = 108,
    SLOT_DESTROY_HANDLE = 109
};

/* ICorProfilerThreadEnum */
enum { SLOT_THREADS_NEXT = 7 };

/* StackSnapshotCallback */
typedef hresult (*stack_snapshot_callback)(id function, uintptr_t ip, id frame_info, uint32_t context_size,
                                           uint8_t *context, void *client_data);

static inline hresult query_interface(struct object *o, const struct guid *iid, struct object **out) {
    return ((hresult(*)(struct object *, const struct guid *, struct object **))
        o->vtable[SLOT_QUERY_INTERFACE])(o, iid, out);
}

static inline void release(struct object *o) {
    ((uint32_t(*)(struct object *))o->vtable[SLOT_RELEASE])(o);
}

static inline hresult get_thread_info(struct object *info, id thread, uint32_t *os_id) {
    return ((hresult(*)(struct object *, id, uint32_t *))info->vtable[SLOT_GET_THREAD_INFO])(info, thread, os_id);
}

static inline hresult get_object_size(struct object *info, id object, size_t *size) {
    return ((hresult(*)(struct object *, id, size_t *))info->vtable[SLOT_GET_OBJECT_SIZE2])(info, object, size);
}

static inline hresult get_current_thread_id(struct object *info, id *thread) {
    return ((hresult(*)(struct object *, id *))info->vtable[SLOT_GET_CURRENT_THREAD_ID])(info, thread);
}

static inline hresult get_runtime_major(struct object *info, uint16_t *major) {
    uint16_t instance, minor, build, revision;
    uint32_t type;
    return ((hresult(*)(struct object *, uint16_t *, uint32_t *, uint16_t *, uint16_t *, uint16_t *, uint16_t *,
                        uint32_t, uint32_t *, uint16_t *))info->vtable[SLOT_GET_RUNTIME_INFORMATION])(
        info, &instance, &type, major, &minor, &build, &revision, 0, 0, 0);
}

static inline hresult set_event_mask(struct object *info, uint32_t low, uint32_t high) {
    return ((hresult(*)(struct object *, uint32_t, uint32_t))info->vtable[SLOT_SET_EVENT_MASK2])(info, low, high);
}

/* COR_PRF_EVENTPIPE_PROVIDER_CONFIG */
struct provider_config {
    const uint16_t *name;
    uint64_t keywords;
    uint32_t level;
    const uint16_t *filter;
};

/* Without rundown: then the session is synchronous, and its events come on the
 * threads that raise them. */
static inline hresult event_pipe_start(struct object *info, struct provider_config *provider, uint64_t *session) {
    return ((hresult(*)(struct object *, uint32_t, struct provider_config *, int32_t, uint64_t *))
                info->vtable[SLOT_EVENT_PIPE_START_SESSION])(info, 1, provider, 0, session);
}

static inline hresult event_pipe_stop(struct object *info, uint64_t session) {
    return ((hresult(*)(struct object *, uint64_t))info->vtable[SLOT_EVENT_PIPE_STOP_SESSION])(info, session);
}

/* Never with a seed: a wrong one ends the process. */
static inline hresult do_stack_snapshot(struct object *info, id thread, stack_snapshot_callback callback,
                                       uint32_t flags,
                                        void *client_data) {
    return ((hresult(*)(struct object *, id, stack_snapshot_callback, uint32_t, void *, uint8_t *, uint32_t))
                info->vtable[SLOT_DO_STACK_SNAPSHOT])(info, thread, callback, flags, client_data, 0, 0);
}

/* A full, blocking collection; never on a thread that the runtime knows. */
static inline hresult force_gc(struct object *info) {
    return ((hresult(*)(struct object *))info->vtable[SLOT_FORCE_GC])(info);
}

/* The next two are those of ICorProfilerInfo13. */
static inline hresult create_weak_handle(struct object *info, id object, uintptr_t *handle) {
    return ((hresult(*)(struct object *, id, int32_t, uintptr_t *))
                info->vtable[SLOT_CREATE_HANDLE])(info, object, COR_PRF_HANDLE_TYPE_WEAK, handle);
}

static inline hresult destroy_handle(struct object *info, uintptr_t handle) {
    return ((hresult(*)(struct object *, uintptr_t))info->vtable[SLOT_DESTROY_HANDLE])(info, handle);
}

static inline hresult request_profiler_detach(struct object *info, uint32_t expected_ms) {
    return ((hresult(*)(struct object *, uint32_t))info->vtable[SLOT_REQUEST_PROFILER_DETACH])(info, expected_ms);
}

static inline hresult enum_threads(struct object *info, struct object **threads) {
    return ((hresult(*)(struct object *, struct object **))info->vtable[SLOT_ENUM_THREADS])(info, threads);
}

static inline hresult suspend_runtime(struct object *info) {
    return ((hresult(*)(struct object *))info->vtable[SLOT_SUSPEND_RUNTIME])(info);
}

static inline hresult resume_runtime(struct object *info) {
    return ((hresult(*)(struct object *))info->vtable[SLOT_RESUME_RUNTIME])(info);
}

static inline hresult threads_next(struct object *threads, uint32_t want, id *out, uint32_t *got) {
    return ((hresult(*)(struct object *, uint32_t, id *, uint32_t *))
        threads->vtable[SLOT_THREADS_NEXT])(threads, want, out, got);
}

#endif
