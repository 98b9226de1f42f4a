/* The ring of protocol.h, as seen from its writers. */
#ifndef CLRSNAP_RING_H
#define CLRSNAP_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch.h"
#include "protocol.h"

struct ring {
    struct ring_control *control;
    const struct chain_rule *rules; /* CHAIN_RULES of them; the reader adds some at any time */
    uint8_t *records;
    uint64_t capacity; /* what control said when the ring was opened */
};

enum counter { SEEN, PUBLISHED, DROPPED, FAILED };

bool ring_open(struct ring *r, int fd, size_t largest_record);
void ring_close(struct ring *r);
void ring_abandon(struct ring *r);
void ring_count(struct ring *r, enum counter counter, enum event_type type);
bool ring_has_room(struct ring *r, size_t size);
bool ring_put(struct ring *r, const struct record *record, const void *frames, uint64_t *position);
bool ring_empty(struct ring *r);

#endif
