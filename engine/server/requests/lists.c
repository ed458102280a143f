/* Lists that a server sends between tasks: the keys of its rows, and its counts of bad deltas. The
 * first request asks for the length of the list. Later ones ask for entries; such a request has a
 * run of entry numbers in place of keys.
 *
 * Thread: the server's owner. */
#include <string.h>

#include "engine/server/request_ops.h"

/* ---- how long a list is: the output is one number, so a run of one "key" asks for it ---- */

static size_t count_bytes(const RubatoTableSpec *spec)
{
    (void)spec;
    return sizeof(uint64_t);
}

static const char *find_count_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    (void)shard;
    return request->keys.n == 1 && request->keys.keys == NULL
               ? NULL
               : "a count that is not asked for as one number";
}

static void count_keys(RubatoShard *shard, RubatoRequest *request)
{
    const uint64_t n = shard_n_rows(shard);

    memcpy(request->output, &n, sizeof n);
}

static void count_bad_gradients(RubatoShard *shard, RubatoRequest *request)
{
    const uint64_t n = bad_gradients_length(shard_bad_gradients(shard));

    memcpy(request->output, &n, sizeof n);
}

/* ---- the lists ---- */

static size_t key_bytes(const RubatoTableSpec *spec)
{
    (void)spec;
    return sizeof(RubatoKey);
}

static const char *find_keys_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    return request_find_number_fault(shard_can_list(shard) ? shard_n_rows(shard) : 0, request);
}

static void list_keys(RubatoShard *shard, RubatoRequest *request)
{
    shard_list(shard, request->keys.first, request->keys.n, request->output);
}

static size_t counts_bytes(const RubatoTableSpec *spec)
{
    (void)spec;
    return sizeof(BadCounts);
}

static const char *find_counts_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    return request_find_number_fault(bad_gradients_length(shard_bad_gradients(shard)), request);
}

static void list_bad_gradients(RubatoShard *shard, RubatoRequest *request)
{
    bad_gradients_read(shard_bad_gradients(shard), (size_t)request->keys.first, request->keys.n,
                       request->output);
}

extern const RequestOps count_keys_request, list_keys_request;
extern const RequestOps count_bad_gradients_request, list_bad_gradients_request;

const RequestOps count_keys_request = {
    .name = "count of keys",
    .rows = REQUEST_OUTPUT,
    .is_sent_again = true,
    .row_bytes = count_bytes,
    .find_fault = find_count_fault,
    .between_tasks = count_keys,
};

const RequestOps list_keys_request = {
    .name = "list of keys",
    .rows = REQUEST_OUTPUT,
    .is_sent_again = true,
    .row_bytes = key_bytes,
    .find_fault = find_keys_fault,
    .between_tasks = list_keys,
};

const RequestOps count_bad_gradients_request = {
    .name = "count of bad gradients",
    .rows = REQUEST_OUTPUT,
    .is_sent_again = true,
    .row_bytes = count_bytes,
    .find_fault = find_count_fault,
    .between_tasks = count_bad_gradients,
};

const RequestOps list_bad_gradients_request = {
    .name = "list of bad gradients",
    .rows = REQUEST_OUTPUT,
    .is_sent_again = true,
    .row_bytes = counts_bytes,
    .find_fault = find_counts_fault,
    .between_tasks = list_bad_gradients,
};
