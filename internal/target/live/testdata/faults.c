// The target of package live's fault injection. It records its events in a file that the
// test maps too, so the records outlive an exec and an exit.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// In the order of type books in faults_target_test.go.
struct books {
	volatile uint64_t progress, victim, action, done;
	volatile uint64_t usr1, rt, last, disorder;
	volatile uint64_t main, generation, respawned, children;
	volatile uint64_t sleepy, wrong;
};
enum { NONE, EXIT_THREAD, EXEC, FORK, VFORK, CLONE, EXIT_PROCESS };
static struct books *b;
static char *self, *file;
static const int exit_code = 37, child_code = 7;

__attribute__((noreturn)) static void *victim(void *);
static void us(long n) {
	struct timespec t = {n / 1000000, n % 1000000 * 1000};
	while (nanosleep(&t, &t) && errno == EINTR) {}
}
static void wrong(int what) { b->wrong |= 1u << what; }

static void on_usr1(int s, siginfo_t *i, void *c) { (void)s; (void)c; b->usr1++; if (i->si_code != SI_TKILL) wrong(0); }
static void on_rt(int s, siginfo_t *i, void *c) {
	(void)s; (void)c;
	uint64_t v = (uint64_t)(unsigned)i->si_value.sival_int;
	if (v != b->last + 1) b->disorder++;
	if (i->si_code != SI_QUEUE) wrong(1);
	b->last = v;
	b->rt++;
}

static void *short_thread(void *arg) { return arg; }
static void await_child(pid_t c) {
	int st = 0;
	while (waitpid(c, &st, 0) < 0) if (errno != EINTR) { wrong(2); return; }
	if (!WIFEXITED(st) || WEXITSTATUS(st) != child_code) wrong(3);
	b->children++;
}
static void act(uint64_t what) {
	pid_t c;
	pthread_t t;
	switch (what) {
	case EXIT_THREAD: b->done++; pthread_exit(0);
	case EXEC: b->done++; execl(self, self, "target", file, (char *)0); wrong(4); abort();
	case FORK: if ((c = fork()) == 0) _exit(child_code); await_child(c); break;
	case VFORK: if ((c = vfork()) == 0) { us(5000); _exit(child_code); } await_child(c); break;
	case CLONE: if (pthread_create(&t, 0, short_thread, 0) || pthread_join(t, 0)) wrong(5); b->children++; break;
	case EXIT_PROCESS: b->done++; _exit(exit_code);
	}
	b->done++;
}

static void *victim(void *arg) {
	(void)arg;
	b->victim = (uint64_t)syscall(SYS_gettid);
	for (;;) {
		b->progress++;
		uint64_t a = __atomic_exchange_n(&b->action, NONE, __ATOMIC_SEQ_CST);
		if (a) act(a);
		if (b->sleepy) us(200); else for (volatile int i = 0; i < 200; i++) {}
	}
}

static int target(void) {
	int fd = open(file, O_RDWR | O_CLOEXEC);
	b = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (b == MAP_FAILED) return 3;
	struct sigaction u = {.sa_sigaction = on_usr1, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct sigaction r = {.sa_sigaction = on_rt, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(SIGUSR1, &u, 0);
	sigaction(SIGRTMIN + 1, &r, 0);
	alarm(900);
	b->victim = 0;
	b->generation++;
	for (;;) {
		pthread_t v;
		if (pthread_create(&v, 0, victim, 0)) return 4;
		while (pthread_tryjoin_np(v, 0) == EBUSY) { b->main++; us(500); }
		b->respawned++;
	}
}

// tracer attaches to a thread as a debugger does, for some time.
static int tracer(int tid, long time) {
	if (ptrace(PTRACE_SEIZE, tid, 0, 0)) { puts("no"); return 0; }
	puts("yes");
	fflush(stdout);
	us(time);
	return 0;
}

int main(int argc, char **argv) {
	self = argv[0];
	if (argc == 3 && !strcmp(argv[1], "target")) { file = argv[2]; return target(); }
	if (argc == 4 && !strcmp(argv[1], "tracer")) return tracer(atoi(argv[2]), atol(argv[3]));
	return 2;
}
