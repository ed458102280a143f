/* What workers ask, as it is told to the coordinator: see tensor_exchange_private.h. It is told in
 * the order in which it was asked. One thread tells at a time, and takes along what others have
 * asked meanwhile. */
#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/collectives/tensor_exchange_private.h"

/* Bytes of wishes that are told at once: less than a control message may have. */
enum { TOLD_BYTES = 512 << 10 };

/* Whole lines, up to TOLD_BYTES. The lock is held. (transfer full) */
static char *take_wishes(TensorExchange *exchange)
{
    GString *const wishes = exchange->wishes;
    size_t n = wishes->len;

    if (n > TOLD_BYTES)
        for (n = TOLD_BYTES; wishes->str[n - 1] != '\n';)
            n--;
    char *const taken = g_strndup(wishes->str, n);
    g_string_erase(wishes, 0, (gssize)n);
    return taken;
}

void wishes_tell(TensorExchange *exchange)
{
    if (exchange->is_telling)
        return;
    exchange->is_telling = true;
    while (exchange->wishes->len > 0) {
        g_autofree char *wishes = take_wishes(exchange);

        pthread_mutex_unlock(&exchange->lock);
        exchange->links->tell(exchange->user, wishes);
        pthread_mutex_lock(&exchange->lock);
    }
    exchange->is_telling = false;
}

void wishes_begin(TensorExchange *exchange)
{
    for (uint32_t i = 0; i < exchange->n_local && !exchange->is_used; i++)
        if (exchange->has_left[i])
            tensor_wish_write(exchange->wishes, &(TensorWish){ .kind = TENSOR_WISH_LEAVE,
                                                               .rank = exchange->first_rank + i });
    exchange->is_used = true;
    if (exchange->n_said == exchange->losses->len)
        return;
    exchange->n_said = exchange->losses->len;
    tensor_wish_write(exchange->wishes, &(TensorWish){ .kind = TENSOR_WISH_HEARD,
                                                       .rank = exchange->first_rank,
                                                       .n = exchange->n_said });
}

void wishes_add_cutovers(TensorExchange *exchange)
{
    if (!exchange->wants_cutovers)
        return;
    exchange->wants_cutovers = false;
    wishes_begin(exchange);
    tensor_wish_write(exchange->wishes, &(TensorWish){ .kind = TENSOR_WISH_CUT,
                                                       .cutovers = exchange->wanted_cutovers });
}

void wishes_add_asks(TensorExchange *exchange, uint32_t rank, const TensorEntry *entries, size_t n)
{
    TensorWish wish = { .kind = TENSOR_WISH_GROUP, .rank = rank, .n = (uint32_t)n };

    wishes_begin(exchange);
    if (n > 1)
        tensor_wish_write(exchange->wishes, &wish);
    wish.kind = TENSOR_WISH_ASK;
    wish.set = entries->set;
    for (size_t i = 0; i < n; i++) {
        wish.request = entries[i].part.request;
        g_strlcpy(wish.name, entries[i].name, sizeof wish.name);
        tensor_wish_write(exchange->wishes, &wish);
    }
}
