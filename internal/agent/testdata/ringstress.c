/*
 * Writes to a ring from many threads: ringstress FD THREADS RECORDS.
 *
 * The values of a record are its thread's number, its own number, the number of
 * the thread's records dropped before, and the sum of these values. The frames of
 * the record are computed from the values.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ring.h"

static struct ring ring;
static long records;

static void *write_records(void *number) {
    struct short_frame frames[16];
    uint64_t thread = (uint64_t)(uintptr_t)number, dropped = 0;
    for (uint64_t i = 0; i < (uint64_t)records; i++) {
        struct record r = {.type = EVENT_ALLOC, .frames = (uint16_t)((i * 7 + thread) % 17),
                           .values = {thread, i, dropped, thread + i + dropped}};
        r.size = (uint32_t)(sizeof r + r.frames * sizeof *frames);
        for (unsigned f = 0; f < r.frames; f++) frames[f] = (struct short_frame){.function = thread + f, .ip = i + f};
        uint64_t position;
        ring_count(&ring, SEEN, EVENT_ALLOC);
        bool put = ring_has_room(&ring, sizeof r) && ring_put(&ring, &r, frames, &position);
        ring_count(&ring, put ? PUBLISHED : DROPPED, EVENT_ALLOC);
        if (put) continue;
        dropped++;
        usleep(20);
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 4 || !ring_open(&ring, atoi(arguments[1]), sizeof(struct record) + 16 * sizeof(struct short_frame))) {
        fprintf(stderr, "no ring\n");
        return 1;
    }
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int n = atoi(arguments[2]);
    records = atol(arguments[3]);
    for (int i = 0; i < n && i < MOST; i++) pthread_create(&threads[i], 0, write_records, (void *)(uintptr_t)i);
    for (int i = 0; i < n && i < MOST; i++) pthread_join(threads[i], 0);
    ring_close(&ring);
    return 0;
}
