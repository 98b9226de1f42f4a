/* What the CLR looks for in the library: DllGetClassObject, and behind it the
 * class factory that hands out the profiler. */
#include "agent.h"

#define EXPORT __attribute__((visibility("default")))

/* {5D0C6A1E-94B7-4C0E-8B62-7A53F1C9E2D4}: CLSID in internal/agent, too. */
static const struct guid agent_clsid = {0x5d0c6a1e, 0x94b7, 0x4c0e, {0x8b, 0x62, 0x7a, 0x53, 0xf1, 0xc9, 0xe2, 0xd4}};
static const struct guid unknown_iid = {0x00000000, 0x0000, 0x0000, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};
static const struct guid class_factory_iid = {0x00000001, 0x0000, 0x0000, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};

static hresult on_query_interface(struct object *self, const struct guid *iid, struct object **out) {
    if (!out) return E_POINTER;
    bool known = same_guid(iid, &unknown_iid) || same_guid(iid, &class_factory_iid);
    *out = known ? self : 0;
    return known ? S_OK : E_NOINTERFACE;
}

static uint32_t on_reference(struct object *self) {
    (void)self;
    return 1;
}

static hresult on_create_instance(struct object *self, struct object *outer,
                                  const struct guid *iid, struct object **out) {
    (void)self;
    if (!out) return E_POINTER;
    *out = 0;
    return outer ? CLASS_E_NOAGGREGATION : query_interface(&profiler, iid, out);
}

static hresult on_lock_server(struct object *self, int32_t lock) {
    (void)self;
    (void)lock;
    return S_OK;
}

static const slot vtable[SLOTS_CLASS_FACTORY] = {
    (slot)on_query_interface, (slot)on_reference, (slot)on_reference, (slot)on_create_instance, (slot)on_lock_server,
};

static struct object factory = {vtable};

EXPORT hresult DllGetClassObject(const struct guid *clsid, const struct guid *iid, struct object **out);
EXPORT hresult DllCanUnloadNow(void);

hresult DllGetClassObject(const struct guid *clsid, const struct guid *iid, struct object **out) {
    if (!out) return E_POINTER;
    *out = 0;
    return same_guid(clsid, &agent_clsid) ? query_interface(&factory, iid, out) : CLASS_E_CLASSNOTAVAILABLE;
}

hresult DllCanUnloadNow(void) {
    return 1; /* S_FALSE: never */
}
