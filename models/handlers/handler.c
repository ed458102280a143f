/* The list of handlers: the built-in ones, then those that the program has registered; and how one
 * is run.
 *
 * Threads: any; a handler is run by the shard's present owner. */
#include "models/handlers/handler.h"

#include <rubato/error.h>
#include <string.h>

#include "io/net/caller.h"
#include "models/handlers/part.h"
#include "models/ragged/ragged.h"
#include "models/registry.h"

/* The built-in handlers, a line each. */
#define FOR_EACH_HANDLER(DO)  \
    DO(sum_handler_ops)       \
    DO(norm_handler_ops)      \
    DO(dot_handler_ops)       \
    DO(count_handler_ops)     \
    DO(top_k_handler_ops)     \
    DO(histogram_handler_ops) \
    DO(scale_handler_ops)

#define DECLARE(ops) extern const RubatoHandlerOps ops;
#define LIST(ops) &ops,
FOR_EACH_HANDLER(DECLARE)
static const RubatoHandlerOps *const handlers[] = { FOR_EACH_HANDLER(LIST) };

/* One that programs may call. */
static const RubatoHandlerOps *find_listed(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(handlers); i++)
        if (strcmp(handlers[i]->name, name) == 0)
            return handlers[i];
    return registry_find(REGISTRY_HANDLERS, name);
}

const RubatoHandlerOps *handler_find(const char *name)
{
    const RubatoHandlerOps *const request = ragged_find(name);

    return request != NULL ? request : find_listed(name);
}

const char *handler_name(size_t i)
{
    return i < G_N_ELEMENTS(handlers)
               ? handlers[i]->name
               : registry_name(REGISTRY_HANDLERS, i - G_N_ELEMENTS(handlers));
}

/* ---- checking ---- */

/* A handler of a program may forget to say why. */
static const char *reason_of(const GError *found)
{
    return found == NULL ? "it gave no reason" : found->message;
}

static bool check(const RubatoHandlerOps *ops, const RubatoHandlerSetting *setting,
                  RubatoByteReader arguments, GError **error)
{
    g_autoptr(GError) found = NULL;

    if (ops->check == NULL)
        return true;
    const CallerPlace before = caller_enter(CALLER_IN_HANDLER);
    const bool ok = ops->check(setting, &arguments, &found);

    caller_leave(before);
    if (ok)
        return true;
    g_set_error(error, found == NULL ? RUBATO_ERROR : found->domain,
                found == NULL ? RUBATO_ERROR_INVALID : found->code,
                "table %s: handler %s cannot be called so: %s", setting->spec->name, ops->name,
                reason_of(found));
    return false;
}

static void fail_unknown(const RubatoTableSpec *spec, const char *name, GError **error)
{
    g_autoptr(GString) known = g_string_new(NULL);
    const char *one;

    for (size_t i = 0; (one = handler_name(i)) != NULL; i++)
        g_string_append_printf(known, "%s%s", i == 0 ? "" : ", ", one);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                "table %s: there is no handler %s; there are %s", spec->name, name, known->str);
}

const RubatoHandlerOps *handler_find_for(const RubatoTableSpec *spec, const RubatoHandlerCall *call,
                                         GError **error)
{
    const bool is_ragged = spec->shape == RUBATO_SHAPE_RAGGED;
    const RubatoHandlerOps *const ops =
        is_ragged ? ragged_find(call->handler) : find_listed(call->handler);
    const RubatoHandlerSetting setting = { .spec = spec, .scope = call->scope };

    if (ops == NULL) {
        fail_unknown(spec, call->handler, error);
        return NULL;
    }
    return check(ops, &setting, rubato_byte_reader_new(call->arguments, call->n_argument_bytes),
                 error)
               ? ops
               : NULL;
}

const char *handler_find_fault(const RubatoShard *shard, const HandlerCall *call,
                               const RubatoKeys *keys)
{
    const RubatoTableSpec *spec = shard_spec(shard);

    if (!shard_keys_ok(shard, keys))
        return "a call of a handler with a key that is not here";
    return spec->shape == RUBATO_SHAPE_RAGGED || ragged_is_request(call->ops)
               ? ragged_find_fault(spec, call, keys)
               : NULL;
}

bool handler_check_here(HandlerCall *call, const RubatoShard *shard)
{
    const RubatoTableSpec *spec = shard_spec(shard);
    /* a call on the table and one on a part look alike from here */
    const RubatoHandlerSetting setting = { .spec = spec,
                                           .scope = call->is_whole ? RUBATO_SCOPE_PART
                                                                   : RUBATO_SCOPE_KEYS };
    g_autoptr(GError) found = NULL;

    if (!check(call->ops, &setting, rubato_byte_reader_new(call->arguments, call->n_bytes), &found))
        call->answer.failure = g_strdup(reason_of(found));
    else if (call->is_whole && !rubato_table_spec_holds_range(spec) && !shard_can_list(shard))
        call->answer.failure = g_strdup_printf(
            "table %s: handler %s cannot be called on all rows: storage %s cannot list its keys",
            spec->name, call->ops->name, spec->storage);
    if (call->answer.failure == NULL)
        return true;
    call_trace_end(call_trace_begin(shard, call), /* has_failed= */ true);
    return false;
}

/* ---- running ---- */

static void fail(HandlerCall *call, RubatoShard *shard, const char *reason)
{
    const char *const table = shard_spec(shard)->name;
    const ShardPlace *const place = &shard->place;

    g_free(call->answer.failure);
    call->answer.failure =
        ragged_is_request(call->ops)
            ? g_strdup_printf("table %s: part %u (node %u): %s", table, place->part, place->node,
                              reason)
            : g_strdup_printf("table %s: handler %s failed on part %u (node %u): %s", table,
                              call->ops->name, place->part, place->node, reason);
    if (!call->is_kept || call->record != NULL)
        return;
    shard_complain(shard, call->answer.failure);
    handler_answer_clear(&call->answer);
}

static void say_running(const RubatoShard *shard, const char *name)
{
    /* relaxed: for messages to the user alone */
    if (shard->place.running != NULL)
        atomic_store_explicit(shard->place.running, name, memory_order_relaxed);
}

void handler_run(HandlerCall *call, RubatoShard *shard, const RubatoKeys *keys)
{
    const bool writes = call->ops->access == RUBATO_ACCESS_WRITES;
    RubatoByteReader arguments = rubato_byte_reader_new(call->arguments, call->n_bytes);
    RubatoByteWriter result = rubato_byte_writer_new(writes ? 0 : RUBATO_HANDLER_MOST_BYTES);
    g_autoptr(GError) found = NULL;
    RubatoPart part;

    part_begin(&part, call, shard, keys);
    say_running(shard, call->ops->name);
    const CallerPlace before = caller_enter(CALLER_IN_HANDLER);
    const bool ok = call->ops->run(&part, &arguments, &result, &found);

    caller_leave(before);
    say_running(shard, NULL);
    const char *const failure =
        !ok               ? reason_of(found)
        : part.is_starved ? "there is no memory for the rows of the call"
        : !result.failed  ? NULL
        : writes          ? "it writes, and so can have no result"
                 : "there is no memory for its result, or it is longer than a result may be";

    if (failure != NULL) {
        fail(call, shard, failure);
    } else {
        call->answer.bytes = g_steal_pointer(&result.bytes);
        call->answer.n_bytes = result.n;
    }
    rubato_byte_writer_clear(&result);
    part_end(&part, failure != NULL);
}
