/* Unix sockets with abstract names, over which processes of one host send each other descriptors.
 * Nothing of them remains when a process dies.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_IO_NET_TRANSPORT_SHM_SHM_SOCKET_H
#define RUBATO_IO_NET_TRANSPORT_SHM_SHM_SOCKET_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SHM_MOST_FDS 2u

/* What each end says when a connection begins. */
typedef struct {
    uint32_t magic;
    uint32_t version;
    uint64_t capacity; /* of the sender's ring; 0 of the receiver's bell */
} ShmHello;

#define SHM_HELLO_MAGIC 0x4d485352u
#define SHM_HELLO_VERSION 3u

typedef enum {
    SHM_MESSAGE,
    SHM_NOTHING, /* not yet */
    SHM_END,     /* the other end is gone, or has sent a wrong message */
} ShmNews;

/* A socket that listens at the name, or is connected to it; not blocking. -1 with errno. */
int shm_socket_listen(const char *name);
int shm_socket_connect(const char *name);

/* Accepts the next connection; -1: there is none. Only processes of the same user are accepted. */
int shm_socket_accept(int listener, pid_t *pid);

/* Whether the other end runs as the same user. */
bool shm_socket_is_trusted(int fd, pid_t *pid);

/* Sends a message of the handshake. Returns whether all of it was sent. */
bool shm_socket_send_proof(int fd, const uint8_t *bytes, size_t size);

/* The next message, if it has exactly that size and no descriptors. */
ShmNews shm_socket_receive_proof(int fd, uint8_t *bytes, size_t size);

/* Sends a hello with descriptors, of which there are at most SHM_MOST_FDS. */
bool shm_socket_send_hello(int fd, uint64_t capacity, const int *fds, size_t n_fds);

/* Tells the other end that there is room again. */
void shm_socket_send_room(int fd);

/* The next message: a hello with exactly n_fds descriptors if fds is not NULL, otherwise the news
 * that there is room. (transfer full) of the descriptors */
ShmNews shm_socket_receive(int fd, uint64_t *capacity, int *fds, size_t n_fds);

#endif
