// The target programs of package live's tests: one mode each. A mode prints
// "ready" with its test's numbers, and then runs until it is killed.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t cnt[4]; // cnt[0]: progress
static char head[512];

static int tid(void) { return (int)syscall(SYS_gettid); }
static void ms(int n) {
	struct timespec t = {n / 1000, n % 1000 * 1000000L};
	while (nanosleep(&t, &t) && errno == EINTR) {}
}
static void ready(long a, void *b) { printf("ready %d %ld %p %p\n", tid(), a, (void *)cnt, b); fflush(stdout); }
static pthread_t spawn(void *(*f)(void *), void *arg) {
	pthread_t t;
	if (pthread_create(&t, 0, f, arg)) abort();
	return t;
}
static void forever(void) { for (;;) ms(1000); }

static void on_usr1(int s) { (void)s; cnt[1]++; }
static void on_rt(int s) { (void)s; cnt[3]++; }
static volatile int victim;
static void *storm_victim(void *arg) { (void)arg; victim = tid(); for (;;) pause(); return 0; }
static void storm(void) {
	signal(SIGUSR1, on_usr1);
	signal(SIGRTMIN + 1, on_rt);
	pthread_t v = spawn(storm_victim, 0);
	while (!victim) ms(1);
	ready(victim, 0);
	union sigval val = {0};
	for (;;) { // a lost signal stops cnt[0] for good
		if (pthread_kill(v, SIGUSR1)) abort();
		cnt[0]++;
		while (pthread_sigqueue(v, SIGRTMIN + 1, val)) {}
		cnt[2]++;
		while (cnt[1] < cnt[0] || cnt[3] < cnt[2]) sched_yield();
	}
}

static void *spinner(void *arg) { (void)arg; victim = tid(); for (;;) cnt[0]++; return 0; }
static void spin(void) { spawn(spinner, 0); while (!victim) ms(1); ready(victim, head); forever(); }

static void *shortlived(void *arg) { (void)arg; ms(1); cnt[0]++; return 0; }
static void dying(void) { ready(0, 0); for (;;) { pthread_detach(spawn(shortlived, 0)); ms(1); } }

static void *sleeper(void *arg) {
	(void)arg;
	struct pollfd f = {0};
	char pad[4000];
	memset(pad, tid() & 0xff, sizeof pad);
	victim = tid();
	for (;;) { poll(&f, 0, -1); cnt[1] += pad[7]; }
	return 0;
}
static void await_poll(int t) {
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", t);
	for (long nr = -1; nr != SYS_poll; sched_yield()) {
		FILE *f = fopen(path, "r");
		if (!f || fscanf(f, "%ld", &nr) < 0) abort(); // "running" is no number: 0
		fclose(f);
	}
}
static void sleepers(int n) {
	for (int i = 0; i < n; i++) {
		victim = 0;
		spawn(sleeper, 0);
		while (!victim) sched_yield();
		await_poll(victim);
	}
	ready(victim, head);
	forever();
}

static void ticks(void) { ready(tid(), 0); for (;;) { cnt[0]++; ms(1); } }

static void *vforker(void *arg) {
	int n = (int)(long)arg;
	victim = tid();
	if (vfork() == 0) { prctl(PR_SET_PDEATHSIG, SIGKILL); cnt[1] = getpid(); ms(n); _exit(0); }
	for (;;) { cnt[0]++; ms(1); }
	return 0;
}
static void vforks(int n) { spawn(vforker, (void *)(long)n); while (!victim) ms(1); ready(victim, 0); forever(); }

static void on_alt(int s) { (void)s; victim = tid(); for (;;) cnt[0]++; }
static void *alt(void *arg) {
	volatile uint64_t local[64];
	for (int i = 0; i < 64; i++) local[i] = 0x1122334455660000 + i;
	*(void **)arg = (void *)local;
	stack_t ss = {.ss_sp = malloc(65536), .ss_size = 65536};
	sigaltstack(&ss, 0);
	struct sigaction sa = {.sa_handler = on_alt, .sa_flags = SA_ONSTACK};
	sigaction(SIGUSR1, &sa, 0);
	raise(SIGUSR1);
	return (void *)local[3];
}
static void altstack(void) {
	void *local = 0;
	spawn(alt, &local);
	while (!victim) ms(1);
	ready(victim, local);
	forever();
}

static char *self;
static void *execer(void *arg) { ms(3); char *argv[] = {self, "exec", arg, 0}; execv(self, argv); abort(); }
static void execs(const char *gen) {
	static char next[32];
	int g = gen ? atoi(gen) + 1 : 0;
	snprintf(next, sizeof next, "%d", g);
	if (!g) ready(0, 0);
	for (int i = 0; i < 4; i++) spawn(sleeper, 0);
	if (g & 1) spawn(execer, next); else execer(next);
	forever();
}

static void *deeper(void *arg) {
	char big[300000];
	memset(big, 0x5a, sizeof big);
	victim = tid();
	for (;;) cnt[0] += big[5];
	return arg;
}
static void deep(void) { spawn(deeper, 0); while (!victim) ms(1); ready(victim, 0); forever(); }

// A ring of threads. Each thread counts on its own stack at its turn: at every instant a
// thread has counted as far as the next thread, or once more.
static struct { uint64_t tid, count; } relays[64];
static sem_t turns[64];
static int relayers;
static void *relay(void *arg) {
	volatile uint64_t count = 0;
	int i = (int)(long)arg;
	relays[i].count = (uint64_t)&count;
	relays[i].tid = tid();
	for (;;) {
		while (sem_wait(&turns[i])) {}
		count++;
		cnt[0]++;
		sem_post(&turns[(i + 1) % relayers]);
	}
	return 0;
}
static void relaying(int n) {
	relayers = n;
	for (int i = 0; i < n; i++) {
		sem_init(&turns[i], 0, 0);
		spawn(relay, (void *)(long)i);
		while (!*(volatile uint64_t *)&relays[i].tid) ms(1);
	}
	sem_post(&turns[0]);
	ready(n, relays);
	forever();
}

// Threads that write the number of their round into all words of an array on their stacks, word
// after word: at every instant the first words have the number, and the rest the previous number.
enum { words = 4096 };
static void *wave(void *arg) {
	volatile uint64_t w[words];
	int i = (int)(long)arg;
	for (int k = 0; k < words; k++) w[k] = 0;
	*(volatile uint64_t *)&relays[i].count = (uint64_t)w;
	*(volatile uint64_t *)&relays[i].tid = tid();
	for (uint64_t round = 1;; round++) {
		for (int k = 0; k < words; k++) w[k] = round;
		cnt[0]++;
	}
	return 0;
}
static void waves(int n) {
	for (int i = 0; i < n; i++) {
		spawn(wave, (void *)(long)i);
		while (!*(volatile uint64_t *)&relays[i].tid) ms(1);
	}
	ready(n, relays);
	forever();
}

// A kernel thread in the test program. The thread waits for requests (IORING_SETUP_SQPOLL).
static void kernels(void) {
	struct { uint32_t sq, cq, flags, cpu, idle, rest[25]; } p = {.flags = 1 << 1, .idle = 1000000};
	if (syscall(425, 4, &p) < 0) { ready(-errno, 0); forever(); } // io_uring_setup
	ready(0, 0);
	forever();
}

static void tracer(int pid) {
	if (ptrace(PTRACE_SEIZE, pid, 0, 0)) { perror("seize"); exit(1); }
	ready(0, 0);
	forever();
}
static void zombie(void) {
	pid_t c = fork();
	if (!c) _exit(0);
	siginfo_t i;
	waitid(P_PID, c, &i, WEXITED | WNOWAIT);
	ready(c, 0);
	forever();
}
static void undumpable(void) { prctl(PR_SET_DUMPABLE, 0); ready(0, 0); forever(); }
static void *lonely(void *arg) { (void)arg; victim = tid(); for (;;) { cnt[0]++; ms(1); } return 0; }
static void headless(void) { spawn(lonely, 0); while (!victim) ms(1); ready(victim, 0); pthread_exit(0); }

int main(int argc, char **argv) {
	self = argv[0];
	alarm(300); // no PR_SET_PDEATHSIG: it fires at the end of our parent THREAD, and tracers end their threads
	for (unsigned i = 0; i < sizeof head; i++) head[i] = (char)i;
	const char *m = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 0;
	if (!strcmp(m, "storm")) storm();
	if (!strcmp(m, "spin")) spin();
	if (!strcmp(m, "dying")) dying();
	if (!strcmp(m, "sleepers")) sleepers(n);
	if (!strcmp(m, "ticks")) ticks();
	if (!strcmp(m, "vfork")) vforks(n);
	if (!strcmp(m, "altstack")) altstack();
	if (!strcmp(m, "exec")) execs(argc > 2 ? argv[2] : 0);
	if (!strcmp(m, "deep")) deep();
	if (!strcmp(m, "relay")) relaying(n);
	if (!strcmp(m, "waves")) waves(n);
	if (!strcmp(m, "kernels")) kernels();
	if (!strcmp(m, "tracer")) tracer(n);
	if (!strcmp(m, "zombie")) zombie();
	if (!strcmp(m, "undumpable")) undumpable();
	if (!strcmp(m, "headless")) headless();
	return 2;
}
