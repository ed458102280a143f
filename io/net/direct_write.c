/* Direct writes: see direct_write.h. Invariant: `end` was called exactly if there is a block, or if
 * the direct write is finished. */
#include "io/net/direct_write.h"

#include <string.h>

void direct_write_start(DirectWrite *direct, BlockPool *pool, const DirectWriteSource *source)
{
    *direct = (DirectWrite){ .pool = pool, .source = *source };
    pthread_mutex_init(&direct->lock, NULL);
}

bool direct_write_revoke(DirectWrite *direct)
{
    const DirectWriteSource *const source = &direct->source;
    uint8_t *block;
    bool was_read;

    pthread_mutex_lock(&direct->lock);
    was_read = direct->block == NULL;
    block = was_read ? block_pool_take(direct->pool, source->n_bytes) : direct->block;
    if (was_read && block != NULL)
        memcpy(block, source->bytes, source->n_bytes);
    direct->block = block;
    pthread_mutex_unlock(&direct->lock);
    if (was_read && block != NULL)
        source->end(source->user);
    return block != NULL;
}

void direct_write_finish(DirectWrite *direct)
{
    pthread_mutex_destroy(&direct->lock);
    if (direct->block != NULL)
        block_pool_give(direct->pool, direct->block, direct->source.n_bytes);
    else
        direct->source.end(direct->source.user);
}

const uint8_t *direct_write_lock(DirectWrite *direct)
{
    pthread_mutex_lock(&direct->lock);
    return direct->block != NULL ? direct->block : direct->source.bytes;
}

void direct_write_unlock(DirectWrite *direct)
{
    pthread_mutex_unlock(&direct->lock);
}
