// A program to be sampled. The first argument has commands for the start. The
// program prints numbers for the test, then READY, takes commands from stdin, one
// character each, and ends when stdin ends.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long gettid_(void) { return syscall(SYS_gettid); }

// Both functions take the same time for the same number: a chain of
// multiplications. Each multiplication waits for the previous result.
#define BURN(name)                                                            \
	__attribute__((noinline, aligned(4096))) void name(long n)                \
	{                                                                         \
		while (n-- > 0) {                                                     \
			uint64_t x = n;                                                   \
			__asm__ volatile(".rept 256\n imul %0, %0\n .endr" : "+r"(x));    \
		}                                                                     \
	}                                                                         \
	__attribute__((noinline, aligned(4096))) void name##_end(void) {}
BURN(burn_a)
BURN(burn_b)

static void *burner(void *arg)
{
	int a = (int)(long)arg; // of 4 parts
	printf("thread %ld %d\n", gettid_(), a);
	fflush(stdout);
	for (;;) {
		burn_a(a * 300);
		burn_b((4 - a) * 300);
	}
	return NULL;
}

static void *sleeper(void *arg)
{
	printf("sleeper %ld\n", gettid_());
	fflush(stdout);
	for (;;)
		pause();
	return arg;
}

static long cputime(clockid_t clock)
{
	struct timespec ts;
	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

// A thread that burns 4 ms and ends.
static void *brief(void *arg)
{
	while (cputime(CLOCK_THREAD_CPUTIME_ID) < 4000000)
		burn_a(50);
	return arg;
}

static volatile int stopping;

// A thread that starts brief threads, one after the other, and waits for them.
static void *churner(void *arg)
{
	printf("churner %ld\n", gettid_());
	fflush(stdout);
	while (!stopping) {
		pthread_t t;
		if (pthread_create(&t, NULL, brief, NULL))
			abort();
		pthread_join(t, NULL);
	}
	return arg;
}

// A thread with the numbers MAGIC, MAGIC+1, ... on its stack, from the stack
// pointer up. The argument is the number of words.
static void *magic(void *arg)
{
	long words = (long)arg;
	printf("magic %ld\n", gettid_());
	fflush(stdout);
	__asm__ volatile(
		"mov %0, %%rcx\n"
		"1: dec %%rcx\n"
		"mov $0x1122334400000000, %%rax\n"
		"add %%rcx, %%rax\n"
		"push %%rax\n"
		"test %%rcx, %%rcx\n"
		"jnz 1b\n"
		"mov $0x5eed0001, %%rbx\n mov $0x5eed0002, %%r12\n mov $0x5eed0003, %%r13\n"
		"mov $0x5eed0004, %%r14\n mov $0x5eed0005, %%r15\n mov $0x5eed0006, %%rbp\n"
		"mov $0x5eed0007, %%rcx\n mov $0x5eed0008, %%rdx\n mov $0x5eed0009, %%rsi\n"
		"mov $0x5eed000a, %%rdi\n mov $0x5eed000b, %%r8\n mov $0x5eed000c, %%r9\n"
		"mov $0x5eed000d, %%r10\n mov $0x5eed000e, %%r11\n mov $0x5eed000f, %%rax\n"
		"2: jmp 2b\n"
		:
		: "r"(words));
	return NULL;
}

// A thread that is in the kernel nearly all the time.
static void *kernel(void *arg)
{
	int fd = open("/dev/zero", O_RDONLY);
	char *buf = malloc(1 << 20);
	printf("kernel %ld\n", gettid_());
	fflush(stdout);
	for (;;)
		if (read(fd, buf, 1 << 20) != 1 << 20)
			abort();
	return arg;
}

// A fixed amount of work below a deep stack, and its CPU time.
static __attribute__((noinline)) void work(void)
{
	volatile char deep[128 << 10];
	for (unsigned i = 0; i < sizeof deep; i++)
		deep[i] = 1;
	long begin = cputime(CLOCK_THREAD_CPUTIME_ID);
	burn_a(100000);
	printf("work %ld\n", cputime(CLOCK_THREAD_CPUTIME_ID) - begin);
	fflush(stdout);
}

static void start(void *(*f)(void *), long arg)
{
	pthread_t t;
	if (pthread_create(&t, NULL, f, (void *)arg))
		abort();
}

static void command(char c, char **argv)
{
	if (c >= '0' && c <= '4')
		start(burner, c - '0');
	switch (c) {
	case 's':
		start(sleeper, 0);
		break;
	case 'k':
		start(kernel, 0);
		break;
	case 'm':
		start(magic, 3000);
		break;
	case 'M':
		start(magic, 60000);
		break;
	case 'c':
		start(churner, 0);
		break;
	case 'q':
		stopping = 1;
		break;
	case 'f':
		if (fork() == 0) {
			printf("child %d\n", getpid());
			fflush(stdout);
			for (;;)
				burn_b(100);
		}
		break;
	case 'x':
		execl(argv[0], argv[0], "0", NULL);
		abort();
	case 'w':
		work();
		break;
	}
}

// Every character of the argument is a command for the start.
int main(int argc, char **argv)
{
	printf("burn_a %lu %lu\n", (unsigned long)burn_a, (unsigned long)burn_a_end);
	printf("burn_b %lu %lu\n", (unsigned long)burn_b, (unsigned long)burn_b_end);
	for (char *c = argc > 1 ? argv[1] : ""; *c; c++)
		command(*c, argv);
	printf("READY\n");
	fflush(stdout);
	char c;
	while (read(0, &c, 1) == 1)
		command(c, argv);
	return 0;
}
