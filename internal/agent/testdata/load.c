/*
 * Loads the agent's library into a process without a runtime: load LIBRARY. The
 * agent gets an object that answers every call with S_OK, and three threads tell
 * the agent of their ends. The program shows that the library works with the
 * program's C library.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "com.h"

enum { SLOTS = 128, THREADS = 3 };

static struct object *profiler;

static hresult ok(void) {
    return S_OK;
}

static hresult fake_query_interface(struct object *self, const struct guid *iid, struct object **out) {
    (void)iid;
    *out = self;
    return S_OK;
}

static slot info_vtable[SLOTS] = {[0 ... SLOTS - 1] = (slot)ok, [SLOT_QUERY_INTERFACE] = (slot)fake_query_interface};
static struct object info = {info_vtable};

static void *end(void *number) {
    ((hresult(*)(struct object *, id))profiler->vtable[SLOT_THREAD_DESTROYED])(profiler, (id)number);
    return 0;
}

int main(int count, char **arguments) {
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : 0;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    static const struct guid clsid = {0x5d0c6a1e, 0x94b7, 0x4c0e, {0x8b, 0x62, 0x7a, 0x53, 0xf1, 0xc9, 0xe2, 0xd4}};
    static const struct guid factory_iid = {0x00000001, 0x0000, 0x0000, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};
    static const struct guid callback_iid = {
        0x176fbed1, 0xa55c, 0x4796, {0x98, 0xca, 0xa9, 0xda, 0x0e, 0xf8, 0x83, 0xe7}};
    hresult (*get)(const struct guid *, const struct guid *, struct object **);
    *(void **)&get = dlsym(library, "DllGetClassObject");
    struct object *factory;
    if (!get || get(&clsid, &factory_iid, &factory) != S_OK) return 2;
    hresult (*create)(struct object *, struct object *, const struct guid *, struct object **) =
        (void *)factory->vtable[SLOT_CREATE_INSTANCE];
    if (create(factory, 0, &callback_iid, &profiler) != S_OK) return 3;
    hresult (*initialize)(struct object *, struct object *) = (void *)profiler->vtable[SLOT_INITIALIZE];
    if (initialize(profiler, &info) != S_OK) return 4;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, end, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    ((hresult(*)(struct object *))profiler->vtable[SLOT_SHUTDOWN])(profiler);
    return 0;
}
