/* The sets of workers of an exchange: who is in them, how workers make and remove them. See
 * tensor_exchange_private.h.
 *
 * A set is made or removed while all workers of the task wait for it, here and on other nodes, and
 * not after set 0 has closed. So on a single node a worker that is not in such a call may look a
 * set up without the lock: what was changed before, it has seen with the end of its call. On
 * several nodes a loss may change it at any time. */
#include "engine/collectives/negotiation/tensor_ranks.h"
#include "engine/collectives/tensor_exchange_private.h"

/* Ids that the coordinator tells are below this: more would be nonsense. */
enum { MOST_SETS_TOLD = 1 << 24 };

/* ---- a set ---- */

/* Rising ranks; NULL: all of the task. */
static TensorSet *set_new(TensorExchange *exchange, uint32_t id, const uint32_t *ranks, uint32_t n)
{
    TensorSet *const set = g_new0(TensorSet, 1);
    const TensorPlace *const place = &exchange->place;
    uint32_t at = 0, end = 0;

    set->id = id;
    set->serial = exchange->n_sets_ever++;
    set->generation = exchange->losses == NULL ? 0 : exchange->losses->len;
    set->n = n;
    set->ranks = g_new(uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        set->ranks[i] = ranks == NULL ? i : ranks[i];
    set->members_of = g_new0(uint32_t, place->n_nodes);
    for (uint32_t node = 0; node < place->n_nodes; node++) {
        end += place->workers_of[node];
        if (node == place->self)
            set->first_local = at;
        for (; at < n && set->ranks[at] < end; at++)
            set->members_of[node]++;
    }
    set->n_local = set->members_of[place->self];
    set->joins = g_new0(TensorJoin *, set->n_local);
    set->slots = tensor_slots_new(set->n_local);
    return set;
}

static void set_free(TensorSet *set)
{
    for (uint32_t i = 0; set->asked != NULL && i < set->n_local; i++)
        g_hash_table_unref(set->asked[i]);
    g_free(set->asked);
    g_clear_pointer(&set->in_full, g_array_unref);
    g_clear_error(&set->closed);
    g_free(set->joins);
    tensor_slots_free(set->slots);
    g_clear_pointer(&set->residuals, g_hash_table_unref);
    g_free(set->members_of);
    g_free(set->ranks);
    g_free(set);
}

static void link_set(TensorSet *set)
{
    set->asked = g_new0(GHashTable *, set->n_local);
    for (uint32_t i = 0; i < set->n_local; i++)
        set->asked[i] = g_hash_table_new(g_str_hash, g_str_equal);
    set->in_full = g_array_new(FALSE, FALSE, sizeof(uint32_t));
}

static void forget_asked(const TensorExchange *exchange, TensorSet *set)
{
    tensor_slots_free(set->slots);
    set->slots = tensor_slots_new(set->n_local);
    set->filling = set->n_to_come = set->n_of_group = 0;
    g_clear_pointer(&set->residuals, g_hash_table_unref);
    g_array_set_size(set->in_full, 0);
    g_clear_error(&set->closed);
    set->generation = exchange->losses->len;
    set->n_verdicts = set->n_rounds = 0;
}

void exchange_shrink_set(TensorExchange *exchange, TensorSet *set, uint32_t node)
{
    const uint32_t *const workers_of = exchange->place.workers_of;
    uint32_t first = 0, n = 0;

    for (uint32_t i = 0; i < node; i++)
        first += workers_of[i];
    for (uint32_t i = 0; i < set->n; i++)
        if (set->ranks[i] < first || set->ranks[i] >= first + workers_of[node])
            set->ranks[n++] = set->ranks[i];
    if (n == 0) {
        exchange->sets->pdata[set->id] = NULL;
        set_free(set);
        return;
    }
    if (exchange->place.self > node)
        set->first_local -= set->members_of[node];
    set->n = n;
    set->members_of[node] = 0;
    set->serial = exchange->n_sets_ever++;
    forget_asked(exchange, set);
}

void exchange_begin_set_anew(TensorExchange *exchange, TensorSet *set)
{
    set->serial = exchange->n_sets_ever++;
    forget_asked(exchange, set);
}

void exchange_sets_init(TensorExchange *exchange)
{
    exchange->sets = g_ptr_array_new();
    g_ptr_array_add(exchange->sets, set_new(exchange, 0, NULL, exchange->n_workers));
    exchange->changes = g_new0(TensorSetChange *, exchange->n_local);
}

void exchange_sets_link(TensorExchange *exchange)
{
    link_set(exchange->sets->pdata[0]);
}

void exchange_sets_clear(TensorExchange *exchange)
{
    for (guint i = 0; i < exchange->sets->len; i++)
        if (exchange->sets->pdata[i] != NULL)
            set_free(exchange->sets->pdata[i]);
    g_ptr_array_unref(exchange->sets);
    g_free(exchange->changes);
}

TensorSet *exchange_set(const TensorExchange *exchange, uint32_t id)
{
    return id < exchange->sets->len ? exchange->sets->pdata[id] : NULL;
}

void exchange_lock_sets(TensorExchange *exchange)
{
    if (exchange->links != NULL)
        pthread_mutex_lock(&exchange->lock);
}

void exchange_unlock_sets(TensorExchange *exchange)
{
    if (exchange->links != NULL)
        pthread_mutex_unlock(&exchange->lock);
}

bool exchange_find_member(const TensorExchange *exchange, uint32_t id, uint32_t rank,
                          TensorMember *member, GError **error)
{
    const TensorSet *const set = exchange_set(exchange, id);
    uint32_t at;

    if (set == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "task %s has no set %u of workers",
                    exchange->place.task, id);
        return false;
    }
    if (!tensor_ranks_find(set->ranks, set->n, rank, &at)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "worker %u is not in set %u", rank,
                    id);
        return false;
    }
    *member = (TensorMember){ set->n, at };
    return true;
}

bool tensor_exchange_find_set(TensorExchange *exchange, uint32_t id, uint32_t rank,
                              TensorMember *member, GError **error)
{
    exchange_lock_sets(exchange);
    const bool ok = exchange_find_member(exchange, id, rank, member, error);
    exchange_unlock_sets(exchange);
    return ok;
}

uint32_t tensor_exchange_set_size(TensorExchange *exchange, uint32_t id)
{
    exchange_lock_sets(exchange);
    const TensorSet *const set = exchange_set(exchange, id);
    const uint32_t n = set == NULL ? 0 : set->n;
    exchange_unlock_sets(exchange);
    return n;
}

uint32_t tensor_exchange_set_ranks(TensorExchange *exchange, uint32_t id, uint32_t *ranks,
                                   uint32_t most)
{
    exchange_lock_sets(exchange);
    const TensorSet *const set = exchange_set(exchange, id);
    const uint32_t n = set == NULL ? 0 : set->n;
    for (uint32_t i = 0; i < MIN(n, most); i++)
        ranks[i] = set->ranks[i];
    exchange_unlock_sets(exchange);
    return n;
}

void exchange_end_joins(TensorExchange *exchange, TensorSet *set, uint32_t last,
                        const GError *error)
{
    set->n_verdicts++;
    for (uint32_t i = 0; i < set->n_local; i++) {
        TensorJoin *const join = set->joins[i];

        if (join == NULL)
            continue;
        set->joins[i] = NULL;
        join->last = last;
        if (error != NULL)
            join->failure = g_error_copy(error);
        call_end_part(&join->call, error == NULL ? CALL_OK : CALL_FAILED, 0);
    }
    operations_wake(exchange);
}

/* ---- changes ---- */

/* The changes that this node's workers ask for end. */
static void end_changes(TensorExchange *exchange, uint32_t id, const GError *error)
{
    exchange_set(exchange, 0)->n_verdicts++;
    for (uint32_t i = 0; i < exchange->n_local; i++) {
        TensorSetChange *const change = exchange->changes[i];

        if (change == NULL)
            continue;
        exchange->changes[i] = NULL;
        change->set = id;
        if (error != NULL)
            change->failure = g_error_copy(error);
        call_end_part(&change->call, error == NULL ? CALL_OK : CALL_FAILED, 0);
    }
    operations_wake(exchange);
}

void exchange_refuse_change(TensorExchange *exchange, const GError *error)
{
    end_changes(exchange, 0, error);
}

/* What all workers of this node ask for; NULL: one of them does not. */
static const TensorSetChange *find_change(const TensorExchange *exchange)
{
    for (uint32_t i = 0; i < exchange->n_local; i++)
        if (exchange->changes[i] == NULL)
            return NULL;
    return exchange->changes[0];
}

bool exchange_make_set(TensorExchange *exchange, uint32_t id)
{
    const TensorSetChange *const change = find_change(exchange);

    if (change == NULL || change->n_ranks == 0 || id > exchange->sets->len ||
        exchange_set(exchange, id) != NULL)
        return false;
    if (id == exchange->sets->len)
        g_ptr_array_add(exchange->sets, NULL);
    TensorSet *const set = set_new(exchange, id, change->ranks, change->n_ranks);
    set->made = ++exchange->n_made;
    exchange->sets->pdata[id] = set;
    if (exchange->links != NULL)
        link_set(set);
    end_changes(exchange, id, NULL);
    return true;
}

bool exchange_tell_set(TensorExchange *exchange, uint32_t id, const uint32_t *ranks, uint32_t n,
                       uint32_t made, uint32_t generation)
{
    if (n == 0 || id > MOST_SETS_TOLD || (id > 0 && exchange_set(exchange, id) != NULL))
        return false;
    if (id >= exchange->sets->len)
        g_ptr_array_set_size(exchange->sets, (gint)id + 1);
    if (id == 0)
        set_free(exchange->sets->pdata[0]);
    TensorSet *const set = set_new(exchange, id, ranks, n);
    set->made = made;
    set->generation = generation;
    exchange->sets->pdata[id] = set;
    link_set(set);
    return true;
}

bool exchange_remove_set(TensorExchange *exchange, uint32_t id)
{
    const TensorSetChange *const change = find_change(exchange);
    TensorSet *const set = exchange_set(exchange, id);

    if (change == NULL || change->n_ranks > 0 || change->set != id || id == 0 || set == NULL)
        return false;
    for (uint32_t i = 0; i < set->n_local; i++)
        if (set->joins[i] != NULL || (set->asked != NULL && g_hash_table_size(set->asked[i]) > 0))
            return false; /* what was pending has been decided before */
    if (tensor_slots_first_held(set->slots) != NULL)
        return false;
    exchange->sets->pdata[id] = NULL;
    set_free(set);
    end_changes(exchange, id, NULL);
    return true;
}
