/* See memory_room.h.
 *
 * The kernel alone knows what it would give, so it is asked for the bytes and the room together,
 * which go back at once, untouched: what it refuses is addresses beyond RLIMIT_AS or, where it does
 * not promise more than it has, memory. A thread may take LOOK_BYTES before it asks again, so the
 * room is that of many threads. */
#include "io/memory_room.h"

#include <glib.h>
#include <stdint.h>
#include <sys/mman.h>

#define ROOM_BYTES ((size_t)8 << 20)
#define LOOK_BYTES ((size_t)1 << 20)

/* Since this thread has asked; less than LOOK_BYTES. Each small Add looks at it, so it is where a
 * thread finds it without a call. */
static _Thread_local size_t taken __attribute__((tls_model("initial-exec")));

bool memory_leaves_room(size_t n_bytes)
{
    if (n_bytes < LOOK_BYTES && taken + n_bytes < LOOK_BYTES) {
        taken += n_bytes;
        return true;
    }
    if (n_bytes > SIZE_MAX - ROOM_BYTES)
        return false;
    const size_t asked = n_bytes + ROOM_BYTES;
    void *const room = mmap(NULL, asked, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (room == MAP_FAILED) /* the next request looks again */
        return false;
    munmap(room, asked);
    taken = 0;
    return true;
}

void *memory_try_malloc(size_t n_bytes)
{
    return memory_leaves_room(n_bytes) ? g_try_malloc(n_bytes) : NULL;
}
