/*
 * The ring that the reader takes records from: many writers, one reader.
 *
 * A writer reserves its place by advancing `head`, copies its record there, and
 * stores the size last; the reader takes no record whose size is still 0. Whatever
 * the reader writes to the shared memory, writers stay within it: the capacity is
 * a copy, and every place is computed modulo it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ring.h"

enum { ALIGNMENT = 8, BEFORE_RECORDS = RING_CONTROL_SIZE + CHAIN_RULES_SIZE };

#define MOST_CAPACITY (UINT64_C(1) << 30)

static uint64_t acquire(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static bool sound(const struct ring_control *c, uint64_t size, size_t largest_record) {
    uint64_t capacity = c->capacity;
    return c->magic == RING_MAGIC && c->version == PROTOCOL_VERSION && capacity <= MOST_CAPACITY &&
           (capacity & (capacity - 1)) == 0 && capacity >= 2 * largest_record && size == BEFORE_RECORDS + capacity;
}

/*
 * Maps the reader's memory. Its size must be sealed; otherwise the reader could
 * shrink it while a writer uses it. It holds at least two of the largest records, so
 * that one always has a place once the ring is empty.
 */
bool ring_open(struct ring *r, int fd, size_t largest_record) {
    const int needed = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & needed) != needed) return false;
    off_t size = lseek(fd, 0, SEEK_END);
    if (size < (off_t)BEFORE_RECORDS || size > (off_t)(BEFORE_RECORDS + MOST_CAPACITY)) return false;
    void *p = mmap(0, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return false;
    struct ring_control *control = p;
    uint64_t capacity = (uint64_t)size - BEFORE_RECORDS;
    if (!sound(control, (uint64_t)size, largest_record)) {
        munmap(p, (size_t)size);
        return false;
    }
    *r = (struct ring){
        .control = control, .rules = (struct chain_rule *)((uint8_t *)p + RING_CONTROL_SIZE),
        .records = (uint8_t *)p + BEFORE_RECORDS, .capacity = capacity,
    };
    return true;
}

/* For use when no writer can be in the ring any more. */
void ring_close(struct ring *r) {
    if (r->control) munmap(r->control, BEFORE_RECORDS + r->capacity);
    r->control = 0;
}

/* For use when writers may still be in the ring: they get other memory, which nobody reads. */
void ring_abandon(struct ring *r) {
    if (!r->control) return;
    mmap(r->control, BEFORE_RECORDS + r->capacity, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void ring_count(struct ring *r, enum counter counter, enum event_type type) {
    struct ring_control *c = r->control;
    uint64_t *counters[] = {[SEEN] = c->seen, [PUBLISHED] = c->published, [DROPPED] = c->dropped, [FAILED] = c->failed};
    __atomic_fetch_add(&counters[counter][type], 1, __ATOMIC_RELAXED);
}

bool ring_has_room(struct ring *r, size_t size) {
    uint64_t head = acquire(&r->control->head), used = head - acquire(&r->control->tail);
    /* It is below 0 if head has moved meanwhile. */
    return (int64_t)used < 0 || (used <= r->capacity && r->capacity - used >= size);
}

/* Nothing is left to be taken. */
bool ring_empty(struct ring *r) {
    return !r->control || acquire(&r->control->head) == acquire(&r->control->tail);
}

/* The last store of a record: from now on the reader may take it. */
static void commit(uint8_t *place, uint32_t size) {
    __atomic_store_n((uint32_t *)place, size, __ATOMIC_RELEASE);
}

/*
 * Advances head by the size of a record. If the record does not fit before the end of
 * the ring, the rest of the ring becomes padding.
 */
static bool reserve_place(struct ring *r, uint64_t size, uint64_t *position) {
    struct ring_control *c = r->control;
    uint64_t head = acquire(&c->head);
    for (;;) {
        uint64_t place = head & (r->capacity - 1) & -(uint64_t)ALIGNMENT;
        uint64_t padding = place + size > r->capacity ? r->capacity - place : 0;
        uint64_t used = head - acquire(&c->tail);
        if (used > r->capacity) {
            uint64_t now = acquire(&c->head);
            if (now == head) return false; /* the reader has written an invalid tail */
            head = now;
            continue;
        }
        if (padding + size > r->capacity - used) return false;
        if (!__atomic_compare_exchange_n(&c->head, &head, head + padding + size, true,
                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
        if (padding) commit(r->records + place, (uint32_t)padding);
        *position = head + padding;
        return true;
    }
}

/* Copies a record of record->size bytes, which includes its frames; false if the
 * ring is full. */
bool ring_put(struct ring *r, const struct record *record, const void *frames, uint64_t *position) {
    if (!reserve_place(r, record->size, position)) return false;
    uint8_t *place = r->records + (*position & (r->capacity - 1) & -(uint64_t)ALIGNMENT);
    const size_t after_size = offsetof(struct record, type);
    memcpy(place + after_size, (const uint8_t *)record + after_size, sizeof *record - after_size);
    if (frames) memcpy(place + sizeof *record, frames, record->size - sizeof *record);
    commit(place, record->size);
    return true;
}
