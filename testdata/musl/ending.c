// A function that ends the program with the result of another one, as the C library's
// own starters do. It waits in that one until its standard input ends.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) static int work(void) {
    char b;
    puts("READY");
    fflush(stdout);
    while (read(0, &b, 1) > 0)
        ;
    return b == 0;
}

__attribute__((noinline)) static void ending(void) {
    exit(work());
}

int main(int argc, char **argv) {
    if (argc)
        ending();
    return 1;
}
