/* See outage.h. It reaches sockets of other processes by pidfd_getfd, which the kernel permits to a
 * parent. */
#include "tests/support/cluster/outage.h"

#include <check.h>
#include <dirent.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PROTOCOL
#define SO_PROTOCOL 38
#endif

/* ---- silent ---- */

/* A copy of a descriptor of a process; -1: there is no such descriptor, or the process is gone. */
static int copy_of(int pidfd, int fd)
{
    return (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

static bool is_tcp(int fd)
{
    int protocol = 0;
    socklen_t size = sizeof protocol;

    return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
           protocol == IPPROTO_TCP;
}

static void set_filter(int fd, bool drops)
{
    struct sock_filter drop_all = { .code = BPF_RET | BPF_K, .k = 0 };
    const struct sock_fprog program = { .len = 1, .filter = &drop_all };
    const int none = 0;

    if (drops)
        ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
    else
        (void)setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none,
                         sizeof none); /* it may have none */
}

static void set_filters_of(pid_t pid, bool drops)
{
    char path[64];
    const int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct dirent *entry;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *const directory = opendir(path);
    if (pidfd == -1 || directory == NULL) { /* it has ended */
        if (pidfd != -1)
            close(pidfd);
        return;
    }
    while ((entry = readdir(directory)) != NULL) {
        const int fd = copy_of(pidfd, atoi(entry->d_name));
        if (fd == -1)
            continue;
        if (is_tcp(fd))
            set_filter(fd, drops);
        close(fd);
    }
    closedir(directory);
    close(pidfd);
}

/* Twice: the second time finds connections that were accepted during the first. Nothing is accepted
 * after that. */
static void set_filters(const pid_t *pids, size_t n, bool drops)
{
    for (unsigned round = 0; round < 2; round++)
        for (size_t i = 0; i < n; i++)
            set_filters_of(pids[i], drops);
}

static bool can_reach_sockets(void)
{
    const int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    const int fd = pidfd != -1 ? copy_of(pidfd, STDOUT_FILENO) : -1;

    if (pidfd != -1)
        close(pidfd);
    if (fd != -1)
        close(fd);
    return fd != -1;
}

/* ---- down ---- */

static bool set_loopback(bool up)
{
    struct ifreq request = { .ifr_name = "lo" };
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool is_known = fd != -1 && ioctl(fd, SIOCGIFFLAGS, &request) == 0;

    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    const bool is_done = is_known && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    if (fd != -1)
        close(fd);
    return is_done;
}

/* ---- both ---- */

bool outage_prepare(OutageKind kind)
{
    if (kind == OUTAGE_SILENT)
        return can_reach_sockets();
    /* With users of its own, too, if a network namespace is allowed only so. */
    return (unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) &&
           set_loopback(/* up= */ true);
}

void outage_begin(OutageKind kind, const pid_t *pids, size_t n)
{
    if (kind == OUTAGE_SILENT)
        set_filters(pids, n, /* drops= */ true);
    else
        ck_assert(set_loopback(/* up= */ false));
}

void outage_end(OutageKind kind, const pid_t *pids, size_t n)
{
    if (kind == OUTAGE_SILENT)
        set_filters(pids, n, /* drops= */ false);
    else
        ck_assert(set_loopback(/* up= */ true));
}

unsigned outage_reset_connections(unsigned most)
{
    static int last = 3;
    unsigned n = 0;

    for (int i = 0; i < 256 && n < most; i++) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;

        last = last < 255 ? last + 1 : 3;
        /* It makes the system calls itself, because sanitizers would take calls of libc for a use
         * of the descriptors. */
        if (syscall(SYS_getpeername, last, &peer, &size) == 0 &&
            (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) &&
            syscall(SYS_shutdown, last, SHUT_RDWR) == 0)
            n++;
    }
    return n;
}
