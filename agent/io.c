/* A Unix stream socket with deadlines. Nothing here blocks beyond them. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A path that begins with '@' names an abstract socket, which needs no file. */
int io_connect(const char *path, size_t length) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (length == 0 || length >= sizeof address.sun_path) return -1;
    memcpy(address.sun_path, path, length);
    socklen_t size = sizeof address;
    if (path[0] == '@') {
        address.sun_path[0] = 0;
        size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, (struct sockaddr *)&address, size) == 0) return fd;
    close(fd);
    return -1;
}

/* Waits until fd is ready or broken; either way the next call says which. */
static bool wait_for(int fd, short events, uint64_t deadline) {
    for (;;) {
        int timeout = -1;
        if (deadline != FOREVER) {
            uint64_t now = now_ns();
            uint64_t ms = now < deadline ? (deadline - now + 999999) / 1000000 : 0;
            timeout = ms > 1000000 ? 1000000 : (int)ms;
        }
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, timeout);
        if (n > 0) return true;
        if (n < 0 ? errno != EINTR : timeout == 0) return false;
    }
}

bool io_readable(int fd, uint64_t deadline) {
    return wait_for(fd, POLLIN, deadline);
}

static bool again(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

bool io_read(int fd, void *buffer, size_t length, uint64_t deadline) {
    char *p = buffer;
    while (length > 0) {
        if (!wait_for(fd, POLLIN, deadline)) return false;
        ssize_t n = recv(fd, p, length, 0);
        if (n == 0 || (n < 0 && !again())) return false;
        if (n < 0) continue;
        p += n;
        length -= (size_t)n;
    }
    return true;
}

/* The file descriptor that came with what is read; -1 if none did. */
static int descriptor(struct msghdr *m) {
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    int fd = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len >= CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

/* Like io_read; *received is a file descriptor that came with the first byte, or -1. */
bool io_read_with_fd(int fd, void *buffer, size_t length, int *received, uint64_t deadline) {
    /* There is no room for a second descriptor: the kernel closes it. */
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    *received = -1;
    for (;;) {
        if (!wait_for(fd, POLLIN, deadline)) return false;
        struct iovec part = {.iov_base = buffer, .iov_len = length};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
        if (n == 0 || (n < 0 && !again())) return false;
        if (n < 0) continue;
        *received = descriptor(&m);
        return io_read(fd, (char *)buffer + n, length - (size_t)n, deadline);
    }
}

bool io_write(int fd, const void *buffer, size_t length, uint64_t deadline) {
    const char *p = buffer;
    while (length > 0) {
        if (!wait_for(fd, POLLOUT, deadline)) return false;
        ssize_t n = send(fd, p, length, MSG_NOSIGNAL);
        if (n < 0 && !again()) return false;
        if (n < 0) continue;
        p += n;
        length -= (size_t)n;
    }
    return true;
}
