// Loads a library that was compiled ahead of time, and stays in a call that its
// managed code makes.
//
//   host LIBRARY          blocks there
//   host LIBRARY spin     uses a processor there
//
// The library is an add-in for Node.js. Its initialization asks its host for a
// string, and this host never returns one. Prints READY then, and ends at the end
// of standard input.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *end_with_stdin(void *unused) {
    char c;
    while (read(0, &c, 1) > 0)
        ;
    _exit(0);
}

static int spin;
static volatile unsigned turns;

// Called by managed code.
__attribute__((noinline)) int napi_create_string_utf16(void *env, const void *chars, size_t length, void **result) {
    puts("READY");
    fflush(stdout);
    for (;;)
        if (spin)
            turns++;
        else
            pause();
}

int main(int argc, char **argv) {
    pthread_t thread;
    spin = argc > 2 && strcmp(argv[2], "spin") == 0;
    if (argc < 2 || pthread_create(&thread, NULL, end_with_stdin, NULL) != 0)
        return 2;
    void *library = dlopen(argv[1], RTLD_NOW);
    void (*initialize)(void *env, void *exports) = library == NULL ? NULL : dlsym(library, "napi_register_module_v1");
    if (initialize == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    initialize(&thread, &thread);
    return 1;
}
