/* What workers ask, as it is told to the coordinator: see tensor_exchange_private.h. It is told in
 * the order in which it was asked. One thread tells at a time, and takes along what others have
 * asked meanwhile. */
#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/collectives/tensor_exchange_private.h"

/* Bytes of notices that are told at once: less than a control message may have. */
enum { TOLD_BYTES = 512 << 10 };

/* Whole lines, up to TOLD_BYTES. The lock is held. (transfer full) */
static char *take_notices(TensorExchange *exchange)
{
    GString *const notices = exchange->notices;
    size_t n = notices->len;

    if (n > TOLD_BYTES)
        for (n = TOLD_BYTES; notices->str[n - 1] != '\n';)
            n--;
    char *const taken = g_strndup(notices->str, n);
    g_string_erase(notices, 0, (gssize)n);
    return taken;
}

void notices_tell(TensorExchange *exchange)
{
    if (exchange->is_telling)
        return;
    exchange->is_telling = true;
    while (exchange->notices->len > 0) {
        g_autofree char *notices = take_notices(exchange);

        pthread_mutex_unlock(&exchange->lock);
        exchange->links->tell(exchange->user, notices);
        pthread_mutex_lock(&exchange->lock);
    }
    exchange->is_telling = false;
}

void notices_begin(TensorExchange *exchange)
{
    for (uint32_t i = 0; i < exchange->n_local && !exchange->is_used; i++)
        if (exchange->has_left[i])
            tensor_notice_write(
                exchange->notices,
                &(TensorNotice){ .kind = TENSOR_NOTICE_LEAVE, .rank = exchange->first_rank + i });
    exchange->is_used = true;
    if (exchange->n_said == exchange->losses->len)
        return;
    exchange->n_said = exchange->losses->len;
    tensor_notice_write(exchange->notices, &(TensorNotice){ .kind = TENSOR_NOTICE_HEARD,
                                                            .rank = exchange->first_rank,
                                                            .n = exchange->n_said });
}

void notices_add_cutovers(TensorExchange *exchange)
{
    if (!exchange->wants_cutovers)
        return;
    exchange->wants_cutovers = false;
    notices_begin(exchange);
    tensor_notice_write(
        exchange->notices,
        &(TensorNotice){ .kind = TENSOR_NOTICE_CUT, .cutovers = exchange->wanted_cutovers });
}

void notices_add_asks(TensorExchange *exchange, uint32_t rank, const TensorEntry *entries, size_t n)
{
    TensorNotice notice = { .kind = TENSOR_NOTICE_GROUP, .rank = rank, .n = (uint32_t)n };

    notices_begin(exchange);
    if (n > 1)
        tensor_notice_write(exchange->notices, &notice);
    notice.kind = TENSOR_NOTICE_ASK;
    notice.set = entries->set;
    for (size_t i = 0; i < n; i++) {
        notice.request = entries[i].part.request;
        g_strlcpy(notice.name, entries[i].name, sizeof notice.name);
        tensor_notice_write(exchange->notices, &notice);
    }
}
