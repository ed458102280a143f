/* Direct reads: see direct_read.h. Invariant: `bytes` is the caller's memory until is_revoked is
 * set, and it is set before the caller's call ends, unless all bytes have come. */
#include "io/net/direct_read.h"

#include <string.h>

void direct_read_init(DirectRead *direct, BlockPool *pool)
{
    *direct = (DirectRead){ .pool = pool };
    pthread_mutex_init(&direct->lock, NULL);
}

void direct_read_clear(DirectRead *direct)
{
    pthread_mutex_destroy(&direct->lock);
}

static void start(DirectRead *direct, void *to, size_t n_bytes)
{
    direct->n_bytes = n_bytes;
    direct->bytes = to;
    direct->n_come = 0;
    direct->is_revoked = false;
}

void direct_read_start(DirectRead *direct, uint64_t request_id, void *to, size_t n_bytes)
{
    direct->is_piece = false;
    direct->request_id = request_id;
    start(direct, to, n_bytes);
}

void direct_read_start_piece(DirectRead *direct, const DirectPiece *piece, void *to, size_t n_bytes)
{
    direct->is_piece = true;
    direct->piece = *piece;
    start(direct, to, n_bytes);
}

void direct_read_revoke(DirectRead *direct)
{
    pthread_mutex_lock(&direct->lock);
    if (!direct->is_revoked) {
        uint8_t *const block = block_pool_take(direct->pool, direct->n_bytes);

        if (block != NULL)
            memcpy(block, direct->bytes, direct->n_come);
        direct->bytes = block;
        direct->is_revoked = true;
    }
    pthread_mutex_unlock(&direct->lock);
}

void direct_read_finish(DirectRead *direct)
{
    if (direct->is_revoked)
        block_pool_give(direct->pool, direct->bytes, direct->n_bytes);
    direct->bytes = NULL;
    direct->is_revoked = false;
}

uint8_t *direct_read_lock(DirectRead *direct)
{
    pthread_mutex_lock(&direct->lock);
    return direct->bytes;
}

void direct_read_unlock(DirectRead *direct, size_t n)
{
    direct->n_come += n;
    pthread_mutex_unlock(&direct->lock);
}
