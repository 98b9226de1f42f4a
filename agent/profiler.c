/*
 * The object that implements ICorProfilerCallback to ICorProfilerCallback11.
 *
 * There is one, and it is never freed: the library stays loaded (-z nodelete).
 * All notifications that the agent does not ask for share one function; the
 * calling convention lets it ignore its arguments.
 */
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "events.h"

static const struct guid unknown_iid = {0x00000000, 0x0000, 0x0000, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};

static const struct guid callback_iids[] = {
    {0x176fbed1, 0xa55c, 0x4796, {0x98, 0xca, 0xa9, 0xda, 0x0e, 0xf8, 0x83, 0xe7}},
    {0x8a8cc829, 0xccf2, 0x49fe, {0xbb, 0xae, 0x0f, 0x02, 0x22, 0x28, 0x07, 0x1a}},
    {0x4fd2ed52, 0x7731, 0x4b8d, {0x94, 0x69, 0x03, 0xd2, 0xcc, 0x30, 0x86, 0xc5}},
    {0x7b63b2e3, 0x107d, 0x4d48, {0xb2, 0xf6, 0xf6, 0x1e, 0x22, 0x94, 0x70, 0xd2}},
    {0x8dfba405, 0x8c9f, 0x45f8, {0xbf, 0xfa, 0x83, 0xb1, 0x4c, 0xef, 0x78, 0xb5}},
    {0xfc13df4b, 0x4448, 0x4f4f, {0x95, 0x0c, 0xba, 0x8d, 0x19, 0xd0, 0x0c, 0x36}},
    {0xf76a2dba, 0x1d52, 0x4539, {0x86, 0x6c, 0x2a, 0xa5, 0x18, 0xf9, 0xef, 0xc3}},
    {0x5bed9b15, 0xc079, 0x4d47, {0xbf, 0xe2, 0x21, 0x5a, 0x14, 0x0c, 0x07, 0xe0}},
    {0x27583ec3, 0xc8f5, 0x482f, {0x80, 0x52, 0x19, 0x4b, 0x8c, 0xe4, 0x70, 0x5a}},
    {0xcec5b60e, 0xc69c, 0x495f, {0x87, 0xf6, 0x84, 0xd2, 0x8e, 0xe1, 0x6f, 0xfb}},
    {0x42350846, 0xaaed, 0x47f7, {0xb1, 0x28, 0xfd, 0x0c, 0x98, 0x88, 0x1c, 0xde}},
};

bool same_guid(const struct guid *a, const struct guid *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static hresult on_query_interface(struct object *self, const struct guid *iid, struct object **out) {
    if (!out) return E_POINTER;
    *out = 0;
    bool known = same_guid(iid, &unknown_iid);
    for (size_t i = 0; i < sizeof callback_iids / sizeof *callback_iids; i++)
        known |= same_guid(iid, &callback_iids[i]);
    if (!known) return E_NOINTERFACE;
    *out = self;
    return S_OK;
}

static uint32_t on_reference(struct object *self) {
    (void)self;
    return 1;
}

static hresult on_anything_else(void) {
    return S_OK;
}

/* Loaded at the start of the process: the environment says where the reader is. */
static hresult on_initialize(struct object *self, struct object *info) {
    (void)self;
    const char *path = getenv("CLRSNAP_AGENT_SOCKET");
    bool begun = path && session_open(info, path, strlen(path), false) && session_begin();
    return begun ? S_OK : CORPROF_E_PROFILER_CANCEL_ACTIVATION;
}

/* Attached: the data that came with the request is the path of the socket. */
static hresult on_initialize_for_attach(struct object *self, struct object *info, const void *data, uint32_t length) {
    (void)self;
    bool open = data && session_open(info, data, length, true);
    return open ? S_OK : CORPROF_E_PROFILER_CANCEL_ACTIVATION;
}

static hresult on_profiler_attach_complete(struct object *self) {
    (void)self;
    session_begin();
    return S_OK;
}

static hresult on_profiler_detach_succeeded(struct object *self) {
    (void)self;
    session_detached();
    return S_OK;
}

static hresult on_shutdown(struct object *self) {
    (void)self;
    session_shutdown();
    return S_OK;
}

/* The agent is the one profiler of the process, not one that only listens beside it. */
static hresult on_load_as_notification_only(struct object *self, int32_t *notification_only) {
    (void)self;
    if (notification_only) *notification_only = 0;
    return S_OK;
}

static const slot vtable[SLOTS_PROFILER_CALLBACK] = {
    [0 ... SLOTS_PROFILER_CALLBACK - 1] = (slot)on_anything_else,
    [SLOT_QUERY_INTERFACE] = (slot)on_query_interface,
    [SLOT_ADD_REF] = (slot)on_reference,
    [SLOT_RELEASE] = (slot)on_reference,
    [SLOT_INITIALIZE] = (slot)on_initialize,
    [SLOT_SHUTDOWN] = (slot)on_shutdown,
    [SLOT_INITIALIZE_FOR_ATTACH] = (slot)on_initialize_for_attach,
    [SLOT_PROFILER_ATTACH_COMPLETE] = (slot)on_profiler_attach_complete,
    [SLOT_PROFILER_DETACH_SUCCEEDED] = (slot)on_profiler_detach_succeeded,
    [SLOT_OBJECT_ALLOCATED] = (slot)on_object_allocated,
    [SLOT_THREAD_ASSIGNED_TO_OS_THREAD] = (slot)on_thread_assigned_to_os_thread,
    [SLOT_THREAD_DESTROYED] = (slot)on_thread_destroyed,
    [SLOT_EVENT_PIPE_EVENT_DELIVERED] = (slot)on_event_pipe_event_delivered,
    [SLOT_LOAD_AS_NOTIFICATION_ONLY] = (slot)on_load_as_notification_only,
};

struct object profiler = {vtable};
