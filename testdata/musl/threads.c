// Threads that block in ways of their own, for walks through musl. Each function is
// named after what is above it on the stack. Prints READY when all are blocked, and
// ends at the end of standard input.
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static volatile int looping, spin = 1;

static int compare(const void *a, const void *b) {
    poll(NULL, 0, -1);
    return a < b;
}

__attribute__((noinline)) void in_qsort(void) {
    int numbers[64] = {3, 1, 2};
    qsort(numbers, 64, sizeof *numbers, compare);
}

__attribute__((noinline)) void in_cond_wait(void) {
    pthread_mutex_lock(&held);
    pthread_cond_wait(&never, &held);
    pthread_mutex_unlock(&held); // so that the call above is no jump
}

static void handler(int signal) {
    poll(NULL, 0, -1);
    spin = 0;
}

__attribute__((noinline)) void in_handler(void) {
    raise(SIGUSR1);
    pause();
}

// The signal comes wherever the loop is.
__attribute__((noinline)) void in_loop(void) {
    looping = 1;
    while (spin)
        ;
}

__attribute__((noinline)) void in_printf(void) {
    int ends[2];
    static char much[1 << 17];
    if (pipe(ends) != 0)
        return;
    FILE *f = fdopen(ends[1], "w");
    fprintf(f, "%*d%s", (int)sizeof much - 1, 1, much); // more than the pipe holds
    fflush(f);
}

static void *run(void *function) {
    ((void (*)(void))function)();
    return NULL;
}

// How many threads wait in a call that in the end they do not return from.
static int blocked(void) {
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks)) != NULL;) {
        char path[64];
        int call; // of a thread that does not wait the kernel writes "running"
        snprintf(path, sizeof path, "/proc/self/task/%.20s/syscall", task->d_name);
        FILE *f = fopen(path, "r");
        if (f == NULL)
            continue;
        if (fscanf(f, "%d", &call) == 1)
            n += call == SYS_poll || call == SYS_futex || call == SYS_write || call == SYS_writev;
        fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return n;
}

int main(void) {
    void (*functions[])(void) = {in_qsort, in_cond_wait, in_handler, in_loop, in_printf};
    pthread_t threads[5];
    signal(SIGUSR1, handler);
    for (int i = 0; i < 5; i++)
        if (pthread_create(&threads[i], NULL, run, functions[i]) != 0)
            return 2;
    while (!looping)
        usleep(1000);
    pthread_kill(threads[3], SIGUSR1);
    while (blocked() < 5)
        usleep(1000);
    puts("READY");
    fflush(stdout);
    char c;
    while (read(0, &c, 1) > 0)
        ;
    _exit(0); // exit waits for the lock of the stream that in_printf writes to
}
