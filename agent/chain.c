/*
 * What awaits the async methods of a stack (protocol.h, "Chains of awaits").
 *
 * A method that goes on after an await was called by the thread pool; which methods await it
 * is not on the stack, but in objects. Some of them are gone a moment later, when the method
 * has ended. So the words that lead from one to the next are copied here, inside the event,
 * and the reader makes sense of them.
 *
 * The garbage collector moves objects while a thread is in preemptive mode, as it is in some
 * events. So nothing is copied unless the collector's own count says, before and after, that
 * references are right, and each word is the same when it is read again in between. Arguments in
 * registers cannot be read again: events.c has the stack be walked again where they can have moved.
 *
 * The reader writes rules at any time, and may be broken: a rule is copied before it is used.
 */
#include <string.h>

#include "agent.h"
#include "ring.h"

enum {
    MOST_BASES = 8, /* of a class */
    MOST_PENDING = 32, /* objects that are still to be followed */
    LONGEST_STACK_OFFSET = 1 << 20,
    NEAR = 12, /* words: what is read at once of an object */
    MOST_RESUMED = 64, /* calls of a thread that resume methods */
};

/* Bits of an object's first word that are not the MethodTable's address. */
static const uint64_t marks = 7;

struct chain {
    struct chain_word *words;
    uint32_t count;
    const struct ring *ring;
    uint64_t table_base;
    uint64_t pending[MOST_PENDING];
    uint32_t left;
};

static void copy_rule(struct chain_rule *to, const struct chain_rule *from) {
    uint64_t words[sizeof *to / sizeof(uint64_t)];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = __atomic_load_n((const uint64_t *)from + i, __ATOMIC_RELAXED);
    memcpy(to, words, sizeof *to);
    if (to->count > CHAIN_RULE_WORDS) to->count = CHAIN_RULE_WORDS;
}

/* Copies the rule for a key, if there is one. */
static bool rule_for(const struct chain_rule *rules, uint64_t key, struct chain_rule *rule) {
    uint64_t place = key * CHAIN_HASH >> CHAIN_SHIFT;
    for (uint32_t i = 0; i < CHAIN_PROBES && key; i++) {
        const struct chain_rule *at = &rules[(place + i) % CHAIN_RULES];
        uint64_t found = __atomic_load_n(&at->key, __ATOMIC_ACQUIRE);
        if (found == key) {
            copy_rule(rule, at);
            return true;
        }
        if (!found) return false;
    }
    return false;
}

static uint64_t register_of(const struct frame_record *f, uint8_t which) {
    switch (which) {
    case CHAIN_SP: return f->sp;
    case CHAIN_BP: return f->bp;
    case CHAIN_BX: return f->bx;
    case CHAIN_R12: return f->r12;
    case CHAIN_R13: return f->r13;
    case CHAIN_R14: return f->r14;
    case CHAIN_R15: return f->r15;
    }
    return 0;
}

/* Finds the nearest structure above the stack pointer of a frame that resumes methods: the newest one is the lowest. */
static bool resumed(const struct chain_rule *rule, id thread, uint64_t sp, uint64_t *structure) {
    uint64_t at, before = 0;
    if (!thread || !rule->count || !peek(thread + (uint64_t)(int64_t)rule->offset, &at) || !at) return false;
    if (!peek(at + rule->field, &at)) return false;
    for (int i = 0; i < MOST_RESUMED && at > before; i++) {
        if (at >= sp) {
            *structure = at;
            return true;
        }
        before = at;
        if (!peek(at + (uint64_t)(int64_t)rule->words[0], &at)) return false;
    }
    return false;
}

/* Notes where a frame of the walk begins: that is where the frame before ends. */
static void frame_begins(struct stack *s, uint64_t sp) {
    struct chain_root *last = s->roots ? &s->root[s->roots - 1] : 0;
    if (!last || !last->within) return;
    last->within = false;
    if (last->argument >= sp) s->roots--; /* it is another frame's */
}

/* Takes away what the frames of a walk that is over may not have. */
void chain_roots_end(struct stack *s) {
    frame_begins(s, 0);
}

/* Notes the argument of a frame that a rule is for: the next frame of the walk. */
void chain_root(struct stack *s, uint64_t ip, const uint8_t *context, uint32_t context_size) {
    struct chain_rule rule;
    struct frame_record f = {0};
    copy_registers(&f, context, context_size);
    frame_begins(s, f.sp);
    if (s->roots == MOST_ROOTS || !rule_for(s->rules, ip, &rule)) return;
    struct chain_root root = {.ip = ip, .argument = register_of(&f, rule.base), .frame = s->count};
    if (!root.argument) return;
    if (rule.flags & CHAIN_RESUMES) {
        root.within = true;
        if (!resumed(&rule, s->thread, f.sp, &root.argument)) return;
    }
    if (rule.flags & CHAIN_ON_STACK) {
        if (rule.offset < -LONGEST_STACK_OFFSET || rule.offset > LONGEST_STACK_OFFSET) return;
        root.slot = root.argument + (uint64_t)(int64_t)rule.offset;
        if (!peek(root.slot, &root.argument) || !root.argument) return;
    }
    s->root[s->roots++] = root;
}

/* Whether so many words more fit. */
static bool fits(const struct chain *c, uint32_t words) {
    return c->count + words <= MOST_CHAIN_WORDS;
}

static void follow(struct chain *c, uint64_t object) {
    if (object && object % sizeof object == 0 && c->left < MOST_PENDING) c->pending[c->left++] = object;
}

static bool followed(const struct chain *c, uint64_t object) {
    for (uint32_t i = 0; i < c->count; i++)
        if (c->words[i].address == (object | CHAIN_TABLE)) return true;
    return false;
}

/* The first words of an object, or what is before and behind an argument. */
struct near {
    uint64_t from; /* the address of the first word */
    uint32_t count;
    uint64_t words[NEAR];
};

static void read_near(struct near *n, uint64_t from) {
    n->from = from;
    n->count = (uint32_t)(peek_most(from, n->words, sizeof n->words) / sizeof n->words[0]);
}

static bool word_of(const struct near *n, uint64_t address, uint64_t *value) {
    uint64_t i = (address - n->from) / sizeof *value;
    if (i >= n->count) return peek(address, value);
    *value = n->words[i];
    return true;
}

/* Copies the first word of an object, which is not followed: half of the room is for what is. */
static void copy_head(struct chain *c, uint64_t object) {
    if (!object || object % sizeof object || !fits(c, 1 + MOST_CHAIN_WORDS / 2)) return;
    struct chain_word *head = &c->words[c->count];
    head->address = object | CHAIN_WORD;
    if (peek(object, &head->value)) c->count++;
}

/* Copies the words that a rule names, and follows the references among them. */
static void copy_words(struct chain *c, uint64_t at, const struct chain_rule *rule, const struct near *near) {
    uint32_t count = rule->count;
    if (!fits(c, count)) return;
    struct chain_word *words = c->words + c->count;
    for (uint32_t i = 0; i < count; i++) {
        words[i].address = (at + (uint64_t)(int64_t)rule->words[i]) & ~(uint64_t)CHAIN_KINDS;
        if (!word_of(near, words[i].address, &words[i].value)) return;
    }
    c->count += count;
    for (uint32_t i = 0; i < count; i++)
        if (rule->follow >> i & 1) follow(c, words[i].value);
    if (rule->flags & CHAIN_RESUMES) return;
    for (uint32_t i = 0; i < count; i++)
        if (rule->heads >> i & 1) copy_head(c, words[i].value);
}

/* Copies the rule for a class: its own, or that of the nearest of its bases that has one for all of them. */
static bool rule_of_class(const struct chain *c, uint64_t table, struct chain_rule *rule) {
    if (rule_for(c->ring->rules, table, rule)) return true;
    for (int i = 0; i < MOST_BASES; i++) {
        if (!peek(table + c->table_base, &table) || !table) return false;
        if (rule_for(c->ring->rules, table, rule) && (rule->flags & CHAIN_BASE)) return true;
    }
    return false;
}

static void copy_object(struct chain *c, uint64_t object) {
    if (!fits(c, 1) || followed(c, object)) return;
    struct near near;
    read_near(&near, object);
    if (!near.count) return;
    c->words[c->count++] = (struct chain_word){.address = object | CHAIN_TABLE, .value = near.words[0]};
    struct chain_rule rule;
    if (rule_of_class(c, near.words[0] & ~marks, &rule)) copy_words(c, object, &rule, &near);
}

static void copy_root(struct chain *c, const struct chain_root *root) {
    struct chain_rule rule;
    if (!fits(c, 1) || !rule_for(c->ring->rules, root->ip, &rule)) return;
    c->words[c->count++] = (struct chain_word){
        .address = (uint64_t)root->frame * (CHAIN_KINDS + 1) | CHAIN_ARGUMENT, .value = root->argument};
    if (rule.flags & CHAIN_OBJECT) {
        follow(c, root->argument);
    } else {
        struct near near;
        read_near(&near, (root->argument + (uint64_t)(int64_t)rule.words[0]) & ~(uint64_t)CHAIN_KINDS);
        copy_words(c, root->argument, &rule, &near);
    }
    while (c->left) copy_object(c, c->pending[--c->left]);
}

/* Whether chains are wanted, and the garbage collector says that references are right. */
bool chain_possible(const struct ring *r) {
    uint64_t at = __atomic_load_n(&r->control->heap_moving, __ATOMIC_ACQUIRE);
    uint32_t reasons;
    return at && peek_bytes(at, &reasons, sizeof reasons) && !reasons;
}

static bool of_memory(const struct chain_word *w) {
    return (w->address & CHAIN_KINDS) != CHAIN_ARGUMENT;
}

static uint64_t address_of(const struct chain_word *w) {
    return w->address & ~(uint64_t)CHAIN_KINDS;
}

/* Where a word is in its piece, in words; NEAR or more: it is in another one. */
static uint64_t place_in(const struct piece *p, const struct chain_word *w) {
    return (address_of(w) - p->address) / sizeof w->value;
}

/* Whether the arguments in memory are what they were. */
static bool arguments_unchanged(const struct stack *s) {
    uint64_t now;
    for (uint32_t i = 0; i < s->roots; i++) {
        const struct chain_root *root = &s->root[i];
        if (root->slot && (!peek(root->slot, &now) || now != root->argument)) return false;
    }
    return true;
}

/* Whether all words are what they were. Those of one object that are near each other are read at once. */
static bool unchanged(const struct chain *c) {
    for (uint32_t from = 0, end; from < c->count; from = end) {
        struct piece pieces[MOST_PEEKED];
        uint64_t again[MOST_PEEKED * NEAR];
        uint32_t count = 0;
        for (end = from; end < c->count; end++) {
            const struct chain_word *w = &c->words[end];
            if (!of_memory(w)) continue;
            uint64_t place = count ? place_in(&pieces[count - 1], w) : NEAR;
            if (place >= NEAR) {
                if (count == MOST_PEEKED) break;
                pieces[count++] = (struct piece){.address = address_of(w), .size = sizeof w->value};
            } else if (pieces[count - 1].size < (place + 1) * sizeof w->value) {
                pieces[count - 1].size = (place + 1) * sizeof w->value;
            }
        }
        if (!peek_pieces(pieces, count, again)) return false;
        uint32_t piece = 0;
        uint64_t before = 0; /* words of the pieces before this one */
        for (uint32_t i = from; i < end; i++) {
            const struct chain_word *w = &c->words[i];
            if (!of_memory(w)) continue;
            while (place_in(&pieces[piece], w) >= NEAR) before += pieces[piece++].size / sizeof w->value;
            if (again[before + place_in(&pieces[piece], w)] != w->value) return false;
        }
    }
    return true;
}

/* Adds to a stack the words of the objects to which the arguments of its frames lead. */
void chain_add(struct stack *s, const struct ring *r) {
    uint8_t *end = s->frames + s->size;
    struct chain c = {
        .words = (struct chain_word *)(end + sizeof(uint64_t)), .ring = r,
        .table_base = __atomic_load_n(&r->control->table_base, __ATOMIC_RELAXED),
    };
    for (uint32_t i = 0; i < s->roots; i++) copy_root(&c, &s->root[i]);
    if (!unchanged(&c) || !arguments_unchanged(s) || !chain_possible(r)) return;
    uint64_t count = c.count;
    memcpy(end, &count, sizeof count);
    s->size += sizeof count + c.count * sizeof(struct chain_word);
    s->chain = true;
}
