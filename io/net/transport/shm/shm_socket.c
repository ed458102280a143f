/* Unix sockets of the shared-memory transport, over which two processes share a ring and a bell.
 *
 * The sockets keep messages apart (SOCK_SEQPACKET). Abstract names belong to a network namespace
 * and have no permissions. So both ends ask the kernel for the other end's user, and accept only
 * their own user. */
#define _GNU_SOURCE
#include "io/net/transport/shm/shm_socket.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128

static socklen_t make_address(const char *name, struct sockaddr_un *address)
{
    const size_t length = strlen(name);

    g_assert(length > 0 && length < sizeof address->sun_path);
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(address->sun_path + 1, name, length); /* the zero in front makes it an abstract name */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* Opens a socket and binds or connects it. */
static int open_socket(const char *name, int (*use)(int, const struct sockaddr *, socklen_t))
{
    struct sockaddr_un address;
    const socklen_t length = make_address(name, &address);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd == -1)
        return -1;
    if (use(fd, (const struct sockaddr *)&address, length) == 0)
        return fd;
    const int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

int shm_socket_listen(const char *name)
{
    const int fd = open_socket(name, bind);

    if (fd == -1 || listen(fd, BACKLOG) == 0)
        return fd;
    const int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

bool shm_socket_is_trusted(int fd, pid_t *pid)
{
    struct ucred other;
    socklen_t length = sizeof other;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) != 0 || other.uid != geteuid())
        return false;
    *pid = other.pid;
    return true;
}

int shm_socket_connect(const char *name)
{
    const int fd = open_socket(name, connect);
    pid_t pid;

    if (fd == -1 || shm_socket_is_trusted(fd, &pid))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

int shm_socket_accept(int listener, pid_t *pid)
{
    for (;;) {
        const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd == -1 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd == -1 || shm_socket_is_trusted(fd, pid))
            return fd;
        close(fd);
    }
}

/* Room for the descriptors that come with a message. */
typedef union {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(SHM_MOST_FDS * sizeof(int))];
} Control;

static bool send_message(int fd, const void *bytes, size_t size, const int *fds, size_t n_fds)
{
    struct iovec part = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
    Control control;
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    ssize_t sent;

    g_assert(n_fds <= SHM_MOST_FDS);
    if (n_fds > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, n_fds * sizeof(int));
    }
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent == -1 && errno == EINTR);
    return sent == (ssize_t)size;
}

bool shm_socket_send_hello(int fd, uint64_t capacity, const int *fds, size_t n_fds)
{
    const ShmHello hello = { .magic = SHM_HELLO_MAGIC,
                             .version = SHM_HELLO_VERSION,
                             .capacity = capacity };

    return send_message(fd, &hello, sizeof hello, fds, n_fds);
}

void shm_socket_send_room(int fd)
{
    /* If it cannot be sent, others like it already wait to be read, or nobody is there. */
    (void)send_message(fd, "", 1, NULL, 0);
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

/* Takes the descriptors out of a message. Returns whether there was room for all. */
static size_t take_fds(struct msghdr *message, int *fds, bool *fits)
{
    size_t n = 0;

    *fits = (message->msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t came = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < came; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (n < SHM_MOST_FDS) {
                fds[n++] = fd;
            } else {
                close(fd);
                *fits = false;
            }
        }
    }
    return n;
}

bool shm_socket_send_proof(int fd, const uint8_t *bytes, size_t size)
{
    return send_message(fd, bytes, size, NULL, 0);
}

ShmNews shm_socket_receive_proof(int fd, uint8_t *bytes, size_t size)
{
    struct iovec part = { .iov_base = bytes, .iov_len = size };
    Control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    int came[SHM_MOST_FDS];
    bool fits;
    ssize_t n;

    do
        n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n == -1 && errno == EINTR);
    if (n == -1)
        return errno == EAGAIN ? SHM_NOTHING : SHM_END;
    const size_t n_fds = take_fds(&message, came, &fits);
    close_all(came, n_fds);
    return fits && n_fds == 0 && n == (ssize_t)size ? SHM_MESSAGE : SHM_END;
}

ShmNews shm_socket_receive(int fd, uint64_t *capacity, int *fds, size_t n_fds)
{
    ShmHello hello;
    struct iovec part = { .iov_base = &hello, .iov_len = sizeof hello };
    Control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    int came[SHM_MOST_FDS];
    bool fits;
    ssize_t size;

    do
        size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (size == -1 && errno == EINTR);
    if (size == -1)
        return errno == EAGAIN ? SHM_NOTHING : SHM_END;
    const size_t n = take_fds(&message, came, &fits);
    if (fds == NULL && fits && n == 0 && size == 1)
        return SHM_MESSAGE;
    if (fds == NULL || !fits || n != n_fds || size != (ssize_t)sizeof hello ||
        hello.magic != SHM_HELLO_MAGIC || hello.version != SHM_HELLO_VERSION) {
        close_all(came, n);
        return SHM_END;
    }
    memcpy(fds, came, n * sizeof *fds);
    *capacity = hello.capacity;
    return SHM_MESSAGE;
}
