// Threads that wait for ever, or die in different ways, for core dumps.
//
//   parked wait       three threads wait
//   parked segv       a thread reads address 0x1234
//   parked wild       a thread reads an address that is not canonical
//   parked divide     a thread divides by zero
//   parked abort      abort()
//
// Prints "ready" when all threads wait for ever, or are about to die.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int zero;
static pthread_barrier_t all;
static pthread_mutex_t said = PTHREAD_MUTEX_INITIALIZER; // held until "ready" is printed
const char constant[] = "what a program does not write";
char variable[] = "what a program writes";

static void die(const char *how) {
    if (!strcmp(how, "segv")) (void)*(volatile char *)0x1234;
    if (!strcmp(how, "wild")) (void)*(volatile char *)0xdead000000000000;
    if (!strcmp(how, "divide")) zero = 7 / zero;
    if (!strcmp(how, "abort")) abort();
}

static void *park(void *how) {
    volatile char mark[64];
    strcpy((char *)mark, "on a stack");
    pthread_barrier_wait(&all);
    if (strcmp(how, "wait")) {
        pthread_mutex_lock(&said);
        die(how);
    }
    for (;;) pause();
}

int main(int argc, char **argv) {
    char *how = argc > 1 ? argv[1] : "wait";
    pthread_t t;
    variable[0] = 'W';
    pthread_mutex_lock(&said);
    pthread_barrier_init(&all, NULL, 3);
    pthread_create(&t, NULL, park, "wait");
    pthread_create(&t, NULL, park, how);
    pthread_barrier_wait(&all);
    usleep(50000);
    puts("ready");
    fflush(stdout);
    pthread_mutex_unlock(&said);
    for (;;) pause();
}
