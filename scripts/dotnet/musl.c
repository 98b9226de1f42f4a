// What glibc's builds of libstdc++ and libgcc_s need from the C library and musl
// lacks. With it they can be loaded into a program that was built for musl, such as
// a .NET host for Alpine Linux, on a machine that has no such libraries of its own.
#define _GNU_SOURCE
#include <link.h>
#include <locale.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

char __libc_single_threaded;

size_t __strftime_l(char *to, size_t size, const char *format, const struct tm *tm, locale_t locale) {
    return strftime_l(to, size, format, tm, locale);
}

uint32_t arc4random(void) {
    uint32_t v;
    while (getrandom(&v, sizeof v, 0) != sizeof v)
        ;
    return v;
}

int __pthread_key_create(pthread_key_t *key, void (*destroy)(void *)) { return pthread_key_create(key, destroy); }

// libgcc_s has these two itself, but in a symbol version that musl's linker does not accept.
int __cpu_indicator_init(void) { return 0; }
struct {
    unsigned vendor, type, subtype, features[1];
} __cpu_model;

// Where the unwind information for an address is: struct dl_find_object of <dlfcn.h>.
struct found {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    void *eh_frame;
    unsigned long long reserved[7];
};

struct search {
    uintptr_t pc;
    struct found *out;
};

static int look(struct dl_phdr_info *info, size_t size, void *arg) {
    struct search *s = arg;
    void *eh_frame = NULL;
    int inside = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && s->pc >= at && s->pc < at + p->p_memsz) {
            inside = 1;
            s->out->start = (void *)at;
            s->out->end = (void *)(at + p->p_memsz);
        }
        if (p->p_type == PT_GNU_EH_FRAME)
            eh_frame = (void *)at;
    }
    if (!inside || eh_frame == NULL)
        return 0;
    s->out->flags = 0;
    s->out->map = NULL;
    s->out->eh_frame = eh_frame;
    return 1;
}

int _dl_find_object(void *pc, struct found *out) {
    struct search s = {(uintptr_t)pc, out};
    return dl_iterate_phdr(look, &s) ? 0 : -1;
}

// Destructors of thread-local objects.
struct destructor {
    void (*run)(void *);
    void *object;
    struct destructor *next;
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void run_all(void *first) {
    for (struct destructor *d = first, *next; d != NULL; d = next) {
        next = d->next;
        d->run(d->object);
        free(d);
    }
}

static void make_key(void) { pthread_key_create(&key, run_all); }

int __cxa_thread_atexit_impl(void (*run)(void *), void *object, void *library) {
    struct destructor *d = malloc(sizeof *d);
    if (d == NULL)
        return -1;
    pthread_once(&once, make_key);
    d->run = run;
    d->object = object;
    d->next = pthread_getspecific(key);
    return pthread_setspecific(key, d);
}
