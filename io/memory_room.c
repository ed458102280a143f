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
#define BRIEF_ROOM_BYTES ((size_t)2 << 20)
#define LOOK_BYTES ((size_t)1 << 20)

/* Since this thread has asked; less than LOOK_BYTES. Each small Add looks at it, so it is where a
 * thread finds it without a call. */
static _Thread_local size_t taken __attribute__((tls_model("initial-exec")));

static bool leaves(size_t n_bytes, size_t room_bytes)
{
    if (n_bytes < LOOK_BYTES && taken + n_bytes < LOOK_BYTES) {
        taken += n_bytes;
        return true;
    }
    if (n_bytes > SIZE_MAX - room_bytes)
        return false;
    const size_t asked = n_bytes + room_bytes;
    void *const room = mmap(NULL, asked, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (room == MAP_FAILED) /* the next request looks again */
        return false;
    munmap(room, asked);
    taken = 0;
    return true;
}

bool memory_leaves_room(size_t n_bytes)
{
    return leaves(n_bytes, ROOM_BYTES);
}

void *memory_try_malloc(size_t n_bytes)
{
    return leaves(n_bytes, ROOM_BYTES) ? g_try_malloc(n_bytes) : NULL;
}

void *memory_try_malloc_briefly(size_t n_bytes)
{
    return leaves(n_bytes, BRIEF_ROOM_BYTES) ? g_try_malloc(n_bytes) : NULL;
}
