/* The process cache.
 *
 * DESIGN NOTE
 *
 * One lock orders the node's Adds and fetches of each row. Under it an Add is applied to the cached
 * row and posted to the server; under it a fetch is registered and posted. The network and the
 * server keep this order, so the answer to a fetch holds all of the node's Adds that were posted
 * before it. It may also hold some of the Adds that were posted after it: the server may have
 * parked the fetch and read the rows later. So an Add to a row that is being fetched separates the
 * two. The answer still goes to the calls that wait for it already, but the cache does not keep it,
 * and later Gets fetch the row again. (With a rule that cannot be replayed, see
 * TableRoute.replayable, an Add drops the cached row too.)
 *
 * A Get joins a fetch of its own clock: the answer satisfies its bound, and comes as soon as the
 * answer to a fetch of its own would. A fetch of a later clock may be parked until this very worker
 * has clocked. So a Get joins it only if the min clock is known to be high enough to answer it. A
 * Get that joins leaves its call and the address for the row. The helper thread fills all of them
 * when the answer has come. The thread that brings the answer must not do this: it may be a worker
 * that holds the lock while it handles a server's messages.
 *
 * The lock is held while local servers are asked. These may then run requests of others, and none
 * of those takes the lock. */
#include "tables/process_cache.h"

#include <string.h>

#include "io/key_hash.h"

typedef struct Fetch Fetch;

/* A key with its hash: a hash function of GLib knows no seed. */
typedef struct {
    RubatoKey key;
    guint hash;
} HashedKey;

typedef struct {
    HashedKey key; /* first: the hash table's key points at it */
    bool valid;
    uint64_t tag;    /* the min clock at which it was read */
    Fetch *fetch;    /* that will bring it; NULL: none */
    size_t position; /* in that fetch */
    _Alignas(8) char values[];
} CachedRow;

/* A call that waits for a row of a fetch. */
typedef struct {
    size_t position;
    void *values;
    Call *call;
} Joiner;

struct Fetch {
    Call call; /* first: the call's end finds the fetch */
    Message to_helper;
    ProcessCache *cache;
    uint64_t clock; /* of the Get that it was made for */
    GArray *keys;   /* of RubatoKey */
    char *rows;
    GArray *joiners; /* of Joiner */
    Slicer slicer;
    Message *messages;
};

struct ProcessCache {
    const TableRoute *route;
    Actor *helper;
    KeyHash key_hash;

    pthread_mutex_t lock;
    /* guarded by lock */
    GHashTable *rows;   /* HashedKey → CachedRow */
    uint64_t min_clock; /* the highest min clock that an answer told of */
    ProcessCacheStats stats;
};

/* ---- the rows by key ---- */

static guint stored_hash(gconstpointer key)
{
    return ((const HashedKey *)key)->hash;
}

static gboolean are_equal(gconstpointer a, gconstpointer b)
{
    return ((const HashedKey *)a)->key == ((const HashedKey *)b)->key;
}

static HashedKey hash_key(const ProcessCache *cache, RubatoKey key)
{
    return (HashedKey){ .key = key, .hash = (guint)(key_hash(&cache->key_hash, key) >> 32) };
}

static CachedRow *find_row(const ProcessCache *cache, RubatoKey key)
{
    const HashedKey hashed = hash_key(cache, key);

    return g_hash_table_lookup(cache->rows, &hashed);
}

/* ---- the cache's life ---- */

ProcessCache *process_cache_new(const TableRoute *route, Actor *helper)
{
    ProcessCache *cache = g_new0(ProcessCache, 1);

    cache->route = route;
    cache->helper = helper;
    cache->key_hash = key_hash_make(route->hash_seed);
    pthread_mutex_init(&cache->lock, NULL);
    cache->rows = g_hash_table_new_full(stored_hash, are_equal, NULL, g_free);
    return cache;
}

void process_cache_free(ProcessCache *cache)
{
    if (cache == NULL)
        return;
    g_hash_table_destroy(cache->rows);
    pthread_mutex_destroy(&cache->lock);
    g_free(cache);
}

bool process_cache_covers(const ProcessCache *cache, const Slice *slice)
{
    return cache->route->spec->cache == RUBATO_CACHE_ALL ||
           !table_route_is_local(cache->route, slice);
}

void process_cache_stats(ProcessCache *cache, ProcessCacheStats *stats)
{
    pthread_mutex_lock(&cache->lock);
    *stats = cache->stats;
    pthread_mutex_unlock(&cache->lock);
}

/* ---- fetches ---- */

static void free_fetch(Fetch *fetch)
{
    g_array_unref(fetch->keys);
    g_array_unref(fetch->joiners);
    slicer_clear(&fetch->slicer);
    g_free(fetch->messages);
    g_free(fetch->rows);
    g_free(fetch);
}

/* Detaches the fetch from the rows that wait for it, and fills them if it succeeded. The lock is
 * held. */
static void keep_rows(Fetch *fetch, CallStatus status, uint64_t min_clock)
{
    ProcessCache *cache = fetch->cache;
    const size_t row_bytes = cache->route->row_bytes;

    for (guint i = 0; i < fetch->keys->len; i++) {
        CachedRow *row = find_row(cache, g_array_index(fetch->keys, RubatoKey, i));

        if (row == NULL || row->fetch != fetch)
            continue; /* an Add has come meanwhile, or another fetch */
        row->fetch = NULL;
        if (status != CALL_OK)
            continue;
        memcpy(row->values, fetch->rows + i * row_bytes, row_bytes);
        row->tag = min_clock;
        row->valid = true;
    }
}

/* The helper thread: the answer has come. */
static void complete_fetch(Message *message, void *server)
{
    Fetch *fetch = (Fetch *)((char *)message - offsetof(Fetch, to_helper));
    ProcessCache *cache = fetch->cache;
    const size_t row_bytes = cache->route->row_bytes;
    const CallStatus status =
        (CallStatus)atomic_load_explicit(&fetch->call.status, memory_order_relaxed);
    const uint64_t min_clock = atomic_load_explicit(&fetch->call.min_clock, memory_order_relaxed);

    (void)server;
    pthread_mutex_lock(&cache->lock);
    if (status == CALL_OK)
        cache->min_clock = MAX(cache->min_clock, min_clock);
    keep_rows(fetch, status, min_clock);
    pthread_mutex_unlock(&cache->lock);
    /* no Get can join any more: no row points at the fetch */
    for (guint i = 0; i < fetch->joiners->len; i++) {
        const Joiner *joiner = &g_array_index(fetch->joiners, Joiner, i);

        if (status == CALL_OK)
            memcpy(joiner->values, fetch->rows + joiner->position * row_bytes, row_bytes);
        call_end_part(joiner->call, status, min_clock);
    }
    free_fetch(fetch);
}

static void fetch_ended(Call *call)
{
    Fetch *fetch = (Fetch *)call;

    actor_post(fetch->cache->helper, &fetch->to_helper);
}

static Fetch *new_fetch(ProcessCache *cache, uint64_t clock)
{
    Fetch *fetch = g_new0(Fetch, 1);

    fetch->cache = cache;
    fetch->clock = clock;
    fetch->keys = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    fetch->joiners = g_array_new(FALSE, FALSE, sizeof(Joiner));
    fetch->to_helper = (Message){ .kind = MESSAGE_INVOKE, .invoke = complete_fetch };
    slicer_init(&fetch->slicer, cache->route->partition);
    fetch->messages = g_new0(Message, cache->route->map->n_parts);
    return fetch;
}

/* There is no memory for a part of the call, which ends so. */
static void starve(Call *call)
{
    call_add_parts(call, 1);
    call_end_part(call, CALL_NO_MEMORY, UINT64_MAX);
}

/* Whether there is memory for the lists of a fetch of n keys. It asks before GLib's arrays do,
 * because these end the process if there is none. */
static bool has_room_for_fetch(size_t n_keys)
{
    void *room = g_try_malloc_n(n_keys, 2 * (sizeof(RubatoKey) + sizeof(Joiner)));

    g_free(room);
    return room != NULL;
}

/* Asks for the fetch's keys; the lock is held. */
static void send_fetch(Fetch *fetch, TableClient *client)
{
    const TableRoute *route = fetch->cache->route;
    const RubatoKey *keys = (const RubatoKey *)(void *)fetch->keys->data;
    uint32_t n_slices;

    fetch->rows = g_try_malloc(fetch->keys->len * route->row_bytes);
    n_slices = fetch->rows == NULL
                   ? SLICER_NO_MEMORY
                   : slicer_cut(&fetch->slicer, route->partition, keys, fetch->keys->len);
    call_begin(&fetch->call, fetch_ended);
    const TableAsk ask = { .kind = MESSAGE_GET,
                           .row_bytes = route->row_bytes,
                           .output = fetch->rows };
    if (n_slices == SLICER_NO_MEMORY)
        starve(&fetch->call);
    else
        table_client_send(client, &ask, fetch->slicer.slices, n_slices, &fetch->call,
                          fetch->messages);
    call_sent(&fetch->call);
}

/* ---- reading ---- */

static gboolean is_idle(gpointer key, gpointer value, gpointer user_data)
{
    (void)key;
    (void)user_data;
    return ((CachedRow *)value)->fetch == NULL;
}

static CachedRow *find_or_add_row(ProcessCache *cache, RubatoKey key)
{
    const HashedKey hashed = hash_key(cache, key);
    CachedRow *row = g_hash_table_lookup(cache->rows, &hashed);

    if (row == NULL) {
        row = g_try_malloc0(sizeof *row + cache->route->row_bytes);
        if (row == NULL)
            return NULL;
        row->key = hashed;
        g_hash_table_insert(cache->rows, &row->key, row);
    }
    return row;
}

/* Key i of a slice, and where its row goes. */
static RubatoKey key_of_slice(const Slice *slice, size_t i, size_t *row)
{
    if (slice->keys.at != NULL) {
        *row = slice->keys.at[i];
        return slice->keys.keys[*row];
    }
    *row = slice->row + i;
    return slice->keys.keys != NULL ? slice->keys.keys[i] : slice->keys.first + i;
}

/* Whether a Get at the client's clock may wait for a fetch: the answer is fresh enough, and does
 * not wait longer than the answer to this Get would. */
static bool may_join(const ProcessCache *cache, const Fetch *fetch, uint64_t clock)
{
    const uint64_t staleness = cache->route->spec->staleness;

    return fetch->clock == clock ||
           (fetch->clock > clock &&
            (fetch->clock <= cache->min_clock || fetch->clock - cache->min_clock <= staleness));
}

void process_cache_get(ProcessCache *cache, TableClient *client, const Slice *slice, void *values,
                       Call *call)
{
    const TableRoute *route = cache->route;
    const size_t row_bytes = route->row_bytes;
    const uint64_t staleness = route->spec->staleness;
    const uint64_t needed = client->clock > staleness ? client->clock - staleness : 0;
    uint64_t oldest = UINT64_MAX;
    Fetch *fetch = NULL;

    pthread_mutex_lock(&cache->lock);
    if (g_hash_table_size(cache->rows) * (sizeof(CachedRow) + row_bytes) >
        route->office->sizes.cache_bytes)
        g_hash_table_foreach_remove(cache->rows, is_idle, NULL);
    for (size_t i = 0; i < slice->keys.n; i++) {
        size_t position;
        const RubatoKey key = key_of_slice(slice, i, &position);
        CachedRow *row = find_or_add_row(cache, key);
        char *out = (char *)values + position * row_bytes;

        if (row == NULL) {
            starve(call);
            break;
        }
        if (row->valid && row->tag >= needed) {
            memcpy(out, row->values, row_bytes);
            oldest = MIN(oldest, row->tag);
            cache->stats.hits++;
            continue;
        }
        if (row->fetch == NULL || !may_join(cache, row->fetch, client->clock)) {
            if (fetch == NULL && !has_room_for_fetch(slice->keys.n)) {
                starve(call);
                break;
            }
            if (fetch == NULL)
                fetch = new_fetch(cache, client->clock);
            row->fetch = fetch;
            row->position = fetch->keys->len;
            g_array_append_val(fetch->keys, key);
            cache->stats.misses++;
        } else
            cache->stats.joins += row->fetch != fetch;
        call_add_parts(call, 1);
        g_array_append_val(row->fetch->joiners, ((Joiner){ row->position, out, call }));
    }
    call_note_clock(call, oldest);
    if (fetch != NULL)
        send_fetch(fetch, client);
    pthread_mutex_unlock(&cache->lock);
}

void process_cache_send_get(TableClient *client, const TableAsk *ask, const Slice *slices,
                            uint32_t n_slices, Call *call, Message *messages)
{
    ProcessCache *cache = table_route_cache(client->route);

    if (cache == NULL) {
        table_client_send(client, ask, slices, n_slices, call, messages);
        return;
    }
    for (uint32_t i = 0; i < n_slices; i++)
        if (process_cache_covers(cache, &slices[i]))
            process_cache_get(cache, client, &slices[i], ask->output, call);
        else
            table_client_send(client, ask, &slices[i], 1, call, &messages[i]);
}

/* ---- writing ---- */

void process_cache_forget(ProcessCache *cache)
{
    GHashTableIter iter;
    void *row;

    pthread_mutex_lock(&cache->lock);
    g_hash_table_iter_init(&iter, cache->rows);
    while (g_hash_table_iter_next(&iter, NULL, &row)) {
        ((CachedRow *)row)->valid = false;
        ((CachedRow *)row)->fetch = NULL;
    }
    pthread_mutex_unlock(&cache->lock);
}

static void note_add(ProcessCache *cache, RubatoKey key, const char *deltas)
{
    const TableRoute *route = cache->route;
    CachedRow *row = find_row(cache, key);

    if (row == NULL)
        return;
    row->fetch = NULL;
    if (!route->replayable)
        row->valid = false;
    else if (row->valid)
        route->update->apply(
            &(RubatoUpdate){ .dtype = route->spec->dtype, .width = route->spec->width },
            row->values, deltas, route->spec->width);
}

void process_cache_begin_add(ProcessCache *cache, const RubatoKeys *keys, const void *deltas)
{
    const char *row = deltas;

    if (cache == NULL)
        return;
    pthread_mutex_lock(&cache->lock);
    if (g_hash_table_size(cache->rows) == 0)
        return;
    for (size_t i = 0; i < keys->n; i++, row += cache->route->row_bytes)
        note_add(cache, keys->keys == NULL ? keys->first + i : keys->keys[i], row);
}

void process_cache_end_add(ProcessCache *cache)
{
    if (cache != NULL)
        pthread_mutex_unlock(&cache->lock);
}
