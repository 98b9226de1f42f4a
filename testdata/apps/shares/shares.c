/*
 * The native part of the program "shares": CPU time and waiting time, in functions
 * that managed code calls by P/Invoke.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default"), noinline))

static int64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* CPU time of the calling thread, in nanoseconds. */
EXPORT int64_t shares_cpu(void) { return now(CLOCK_THREAD_CPUTIME_ID); }

/* CPU time of another thread of this process: the clock of pthread_getcpuclockid, by the kernel's id. */
EXPORT int64_t shares_cpu_of(int tid)
{
    enum { PER_THREAD = 4, SCHEDULED = 2 };
    return now((~(unsigned)tid << 3) | PER_THREAD | SCHEDULED);
}

/* How many nanoseconds of CPU time one shares_cpu takes: of ten tries the best. */
EXPORT double shares_cpu_cost(void)
{
    enum { CALLS = 20000 };
    int64_t best = INT64_MAX;
    for (int try = 0; try < 10; try++) {
        int64_t start = shares_cpu();
        for (int i = 0; i < CALLS; i++)
            shares_cpu();
        int64_t took = shares_cpu() - start;
        if (took < best)
            best = took;
    }
    return (double)best / CALLS;
}

static uint64_t mix(uint64_t x)
{
    for (int i = 0; i < 5000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

/* Computes for so many nanoseconds of CPU time. */
EXPORT uint64_t shares_spin(int64_t ns)
{
    uint64_t x = 88172645463325252u;
    for (int64_t end = shares_cpu() + ns; shares_cpu() < end;)
        x = mix(x);
    return x;
}

/* Computes half of the time by itself and has the caller's function do the rest. */
EXPORT uint64_t shares_call_back(int64_t ns, uint64_t (*rest)(int64_t))
{
    uint64_t x = 88172645463325252u;
    for (int64_t end = shares_cpu() + ns / 2; shares_cpu() < end;)
        x = mix(x);
    return x + rest(ns - ns / 2);
}

/* Sleeps in the kernel. */
EXPORT int shares_sleep(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    return nanosleep(&t, 0) == 0;
}

/* Waits for a byte; whoever calls counts the time. */
EXPORT int shares_read(int fd)
{
    char byte;
    return read(fd, &byte, 1) == 1;
}

EXPORT int shares_write(int fd)
{
    char byte = 0;
    return write(fd, &byte, 1) == 1;
}

/* Waits for nothing, until the time is over. */
EXPORT int shares_poll(int milliseconds)
{
    int n = poll(0, 0, milliseconds);
    return n + 1; /* not a tail call, which would leave no frame */
}
