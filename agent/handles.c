/*
 * Weak handles of sampled objects, through which the reader sees which of them are still alive.
 *
 * An object is followed by a handle, not by its address: the garbage collector moves objects, updates the handles
 * to them, and sets those of dead objects to 0. The handle of an object is made inside the event of its allocation.
 * The thread is in cooperative mode then, and has not left the allocator: no collection begins before it does, so
 * the address is right. The object's class may not have been stored yet, and is not needed for a handle.
 *
 * A handle is the address of a word that the collector keeps, so the reader can look at it from outside. The agent
 * only makes handles and destroys them. Threads of the program make them, without a lock of ours; the session's
 * thread destroys them, when the reader says so and at the end.
 */
#include <stdatomic.h>

#include "agent.h"
#include "events.h"

enum { WORD = 64 /* slots that share a word of `free` */ };

static struct {
    struct object *info; /* an ICorProfilerInfo13; 0: no handles are wanted */
    uint32_t capacity; /* slots, a multiple of WORD */
    atomic_uintptr_t *slots; /* 0: free, or its handle is being made */
    atomic_uint_fast64_t *free; /* a bit for each slot */
    atomic_uint hint; /* the word in which a slot was found last */
    atomic_bool closed; /* no handle may be left */
} handles;

static size_t table_size(void) {
    return handles.capacity * sizeof *handles.slots + handles.capacity / WORD * sizeof *handles.free;
}

bool handles_open(struct object *info, uint32_t capacity) {
    handles.capacity = capacity;
    handles.slots = reserve(table_size());
    if (!handles.slots) return false;
    handles.free = (void *)(handles.slots + capacity);
    for (uint32_t i = 0; i < capacity / WORD; i++) atomic_init(&handles.free[i], UINT64_MAX);
    atomic_store(&handles.hint, 0);
    atomic_store(&handles.closed, false);
    handles.info = info;
    return true;
}

bool handles_wanted(void) {
    return handles.info;
}

/* Claims a free slot; false if there is none. */
static bool claim(uint32_t *slot) {
    uint32_t words = handles.capacity / WORD, first = atomic_load_explicit(&handles.hint, memory_order_relaxed);
    for (uint32_t i = 0; i < words; i++) {
        uint32_t w = (first + i) % words;
        uint64_t bits = atomic_load_explicit(&handles.free[w], memory_order_relaxed);
        while (bits) {
            if (!atomic_compare_exchange_weak(&handles.free[w], &bits, bits & (bits - 1))) continue;
            atomic_store_explicit(&handles.hint, w, memory_order_relaxed);
            *slot = w * WORD + (uint32_t)__builtin_ctzll(bits);
            return true;
        }
    }
    return false;
}

static void release_slot(uint32_t slot) {
    atomic_fetch_or(&handles.free[slot / WORD], UINT64_C(1) << slot % WORD);
}

/*
 * Makes a weak handle of the object that this thread allocates; false if there is no slot, or the runtime makes
 * none. If the session ends meanwhile, either this or handles_close_all destroys it: each raises its flag before it
 * looks at the other's.
 */
bool handle_make(id object, struct handle_record *out) {
    uint32_t slot;
    uintptr_t handle = 0;
    if (!object || !claim(&slot)) return false;
    if (create_weak_handle(handles.info, object, &handle) != S_OK || !handle) {
        release_slot(slot);
        return false;
    }
    atomic_store(&handles.slots[slot], handle);
    if (atomic_load(&handles.closed)) {
        handle_destroy(slot);
        return false;
    }
    *out = (struct handle_record){.handle = handle, .slot = slot};
    return true;
}

/* Destroys the handle in a slot, if there is one. */
void handle_destroy(uint32_t slot) {
    if (slot >= handles.capacity) return;
    uintptr_t handle = atomic_exchange(&handles.slots[slot], 0);
    if (!handle) return;
    destroy_handle(handles.info, handle);
    release_slot(slot);
}

/* Destroys all handles. None is made from now on. */
void handles_close_all(void) {
    if (!handles.info) return;
    atomic_store(&handles.closed, true);
    for (uint32_t slot = 0; slot < handles.capacity; slot++) handle_destroy(slot);
}

/* For use when none of the runtime's threads can be in the agent any more. */
void handles_free(void) {
    if (handles.slots) unreserve(handles.slots, table_size());
    handles.slots = 0;
    handles.info = 0;
    handles.capacity = 0;
}
