/* Gives a node whose workers have collectives under way what the coordinator and another node may
 * send: verdicts, vectors of bits, pieces of tensors, none of which need make sense. Whatever
 * comes, each request has ended once the task is cancelled, and what came was given back.
 *
 * The input: a byte whose bits say what workers ask besides, then messages: kind, size, bytes. */
#include <stdlib.h>
#include <string.h>

#include "engine/collectives/tensor_exchange.h"
#include "tests/support/collectives/idle_links.h"

enum {
    N_LOCAL = 2,
    N_NAMES = 5,
    MOST_OF_GROUP = 3,
    N_VALUES = 5,
    JOINS = 1,   /* bits of the first byte: worker 1 joins, */
    CHANGES = 2, /* both make a set */
    HEARS = 0,   /* kinds of messages: verdicts; */
    TAKES = 1,   /* a message of the other node; */
    REPEATS = 2, /* what has ended is asked again */
};

typedef struct {
    Call call;
    TensorEntry entries[MOST_OF_GROUP];
    float values[MOST_OF_GROUP][N_VALUES];
    RubatoGathered gathered;
    uint32_t n;
} Asked;

static struct {
    TensorExchange *exchange;
    Asked asked[N_LOCAL][N_NAMES];
    TensorJoin join;
    TensorSetChange changes[N_LOCAL];
    uint32_t n_messages; /* that came and were not given back, or are to be sent */
} world;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- links ---- */

static void *new_message(void *user, uint32_t node, const TensorMessage *message, void **bytes)
{
    (void)user;
    (void)node;
    world.n_messages++;
    return *bytes = g_malloc0(message->n_bytes + 1);
}

static void drop(void *user, void *message)
{
    (void)user;
    world.n_messages--;
    g_free(message);
}

static void end_message(void *user, uint32_t node, void *message)
{
    (void)node;
    drop(user, message);
}

static bool wait_room(void *user, uint32_t node, bool (*is_over)(void *data), void *data,
                      int timeout_ms)
{
    (void)user;
    (void)node;
    (void)is_over;
    (void)data;
    (void)timeout_ms;
    abort(); /* there is room */
}

/* All has been decided, and nobody else is at work: it would wait for ever. */
static void wait_for_call(void *user, Call *call, int timeout_ms)
{
    (void)user;
    (void)call;
    (void)timeout_ms;
    abort();
}

static const TensorLinks links = {
    .carrier = { .new_message = new_message,
                 .send = end_message,
                 .forget = end_message,
                 .keep = idle_keep,
                 .drop = drop },
    .tell = idle_tell,
    .is_full = idle_is_full,
    .wait_room = wait_room,
    .wait = wait_for_call,
    .always_receives = idle_yes,
    .outlives_losses = idle_yes,
};

/* ---- what workers ask ---- */

/* What workers ask for: alone, or together. */
static const struct {
    TensorOperation operation;
    RubatoReduction reduction;
    const char *names[MOST_OF_GROUP + 1];
} wanted[N_NAMES] = {
    { TENSOR_ALLREDUCE, RUBATO_REDUCTION_SUM, { "a" } },
    { TENSOR_ALLREDUCE, RUBATO_REDUCTION_MAX, { "b", "c" } },
    { TENSOR_ALLREDUCE, RUBATO_REDUCTION_SUM, { "e", "f", "g" } },
    { TENSOR_ALLREDUCE, RUBATO_REDUCTION_ADASUM, { "d" } },
    { TENSOR_ALLGATHER, RUBATO_REDUCTION_SUM, { "rows" } },
};

static TensorEntry entry_of(Asked *asked, uint32_t rank, uint32_t i, uint32_t which)
{
    const bool gathers = wanted[which].operation == TENSOR_ALLGATHER;

    return (TensorEntry){
        .name = wanted[which].names[i],
        .place = rank,
        .part = { .request = { .operation = wanted[which].operation,
                               .n_dims = 1,
                               .shape = { N_VALUES },
                               .reduce = { .reduction = wanted[which].reduction,
                                           .prescale = 1,
                                           .postscale = 1 } },
                  .input = asked->values[i],
                  .output = gathers ? NULL : asked->values[i],
                  .gathered = gathers ? &asked->gathered : NULL },
        .call = &asked->call,
    };
}

static void forget(Asked *asked)
{
    for (uint32_t i = 0; i < asked->n; i++)
        g_clear_error(&asked->entries[i].failure);
    rubato_gathered_clear(&asked->gathered);
}

static void ask(uint32_t rank, uint32_t which)
{
    Asked *const asked = &world.asked[rank][which];

    forget(asked);
    memset(asked, 0, sizeof *asked);
    asked->n = g_strv_length((char **)(uintptr_t)wanted[which].names);
    for (uint32_t i = 0; i < asked->n; i++)
        asked->entries[i] = entry_of(asked, rank, i, which);
    call_begin(&asked->call, NULL);
    call_add_parts(&asked->call, asked->n);
    if (!tensor_exchange_ask(world.exchange, rank, asked->entries, asked->n, NULL))
        call_end_parts(&asked->call, asked->n, CALL_FAILED, 0);
    call_sent(&asked->call);
}

static void begin_call(Call *call)
{
    call_begin(call, NULL);
    call_add_parts(call, 1);
}

static void join(void)
{
    world.join = (TensorJoin){ .place = 1 };
    begin_call(&world.join.call);
    if (!tensor_exchange_join(world.exchange, 1, &world.join, NULL))
        call_end_part(&world.join.call, CALL_FAILED, 0);
    call_sent(&world.join.call);
}

static void change(uint32_t rank)
{
    static uint32_t ranks[] = { 0, 2 };
    TensorSetChange *const it = &world.changes[rank];

    *it = (TensorSetChange){ .ranks = ranks, .n_ranks = 2 };
    begin_call(&it->call);
    if (!tensor_exchange_change_sets(world.exchange, rank, it, NULL))
        call_end_part(&it->call, CALL_FAILED, 0);
    call_sent(&it->call);
}

/* ---- what comes ---- */

/* Sizes that fit: else there is no memory for them, which the fuzzer takes for a fault. */
static void lower_sizes(TensorMessage *message, uint8_t *bytes)
{
    for (size_t at = 0; message->kind == TENSOR_MESSAGE_SIZES && at < message->n_bytes; at++)
        if (at % 8 > 1)
            bytes[at] = 0;
}

static void take(const uint8_t *bytes, size_t n)
{
    uint8_t *const owner = g_malloc(n + 1);
    TensorMessage message;

    if (n > 0)
        memcpy(owner, bytes, n);
    world.n_messages++;
    if (tensor_message_read(owner, n, &message) != NULL || message.is_lent) {
        drop(NULL, owner);
        return;
    }
    /* the piece is where its owner begins, as `keep` says */
    memmove(owner, message.bytes, message.n_bytes);
    message.bytes = owner;
    lower_sizes(&message, owner);
    if (tensor_exchange_receive(world.exchange, 1, &message, owner) != NULL)
        drop(NULL, owner);
}

/* Behind nonsense nobody waits. */
static void hear(const char *verdicts)
{
    if (tensor_exchange_hear(world.exchange, verdicts))
        return;
    for (uint32_t rank = 0; rank < N_LOCAL; rank++)
        for (uint32_t which = 0; which < N_NAMES; which++)
            tensor_exchange_wait(world.exchange, rank, &world.asked[rank][which].call);
}

static void come(uint8_t kind, const uint8_t *bytes, size_t n)
{
    g_autofree char *text = g_strndup((const char *)bytes, n);

    if (kind % 3 == HEARS)
        hear(text);
    else if (kind % 3 == TAKES)
        take(bytes, n);
    for (uint32_t rank = 0; kind % 3 == REPEATS && rank < N_LOCAL; rank++)
        for (uint32_t which = 0; which < N_NAMES; which++)
            if (call_has_ended(&world.asked[rank][which].call))
                ask(rank, which);
}

/* ---- the end ---- */

static void end(uint8_t what)
{
    tensor_exchange_cancel(world.exchange, "it is enough");
    for (uint32_t rank = 0; rank < N_LOCAL; rank++) {
        for (uint32_t which = 0; which < N_NAMES; which++) {
            Asked *const asked = &world.asked[rank][which];

            tensor_exchange_wait(world.exchange, rank, &asked->call);
            forget(asked);
        }
        if ((what & CHANGES) == 0)
            continue;
        tensor_exchange_wait(world.exchange, rank, &world.changes[rank].call);
        g_clear_error(&world.changes[rank].failure);
    }
    if ((what & JOINS) != 0) {
        tensor_exchange_wait(world.exchange, 1, &world.join.call);
        g_clear_error(&world.join.failure);
    }
    tensor_exchange_unlink(world.exchange);
    tensor_exchange_free(world.exchange);
    if (world.n_messages != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t node_ids[] = { 0, 7 }, workers_of[] = { N_LOCAL, 1 };
    const uint8_t what = size > 0 ? data[0] : 0;

    world.exchange = tensor_exchange_new(&(TensorPlace){ .task = "fuzz",
                                                         .n_nodes = 2,
                                                         .node_ids = node_ids,
                                                         .workers_of = workers_of,
                                                         .stall_ms = 60000,
                                                         .fusion_bytes = 1 << 20 });
    tensor_exchange_link(world.exchange, &links, NULL);
    for (uint32_t rank = 0; rank < N_LOCAL; rank++) {
        for (uint32_t which = 0; which < N_NAMES; which++)
            ask(rank, which);
        if ((what & CHANGES) != 0)
            change(rank);
    }
    if ((what & JOINS) != 0)
        join();
    for (size_t at = 1; at + 3 <= size;) {
        const size_t n = MIN(data[at + 1] + 256u * data[at + 2], size - at - 3);

        come(data[at], data + at + 3, n);
        at += 3 + n;
    }
    end(what);
    return 0;
}
