/* What rounding has cut off from tensors that travel as halves, from one call of a name to the
 * next: see tensor_exchange_private.h.
 *
 * An operation takes the residuals of its names out of their set and gives them back when it has
 * succeeded. So no two operations have the same one: a name may be asked for again while its last
 * operation still runs, and then begins without a residual. What both give back is added up. */
#include "engine/collectives/tensor_exchange_private.h"

enum { MOST_NAMES = TENSOR_SLOTS_MOST_NAMES };

static const TensorEntry *entry_of(const Operation *operation, uint32_t name)
{
    const uint32_t n_local = operation->n_entries / operation->n_names;
    const TensorEntry *entry = NULL;

    for (uint32_t i = 0; i < n_local && entry == NULL; i++)
        entry = operation->entries[name * n_local + i];
    return entry;
}

static bool is_of(const TensorResidual *residual, uint64_t n_values, const RubatoReduce *reduce)
{
    const RubatoReduce *const one = &residual->reduce;

    return residual->n_values == n_values && one->reduction == reduce->reduction &&
           one->prescale == reduce->prescale && one->postscale == reduce->postscale &&
           one->divides_by_all == reduce->divides_by_all && one->compression == reduce->compression;
}

/* The name's last one, if it fits, or a new one. NULL: there is no memory. */
static TensorResidual *take(const TensorSet *set, const TensorEntry *entry)
{
    const uint64_t n_values = tensor_request_values(&entry->part.request);
    const RubatoReduce *const reduce = &entry->part.request.reduce;
    gpointer name = NULL, kept = NULL;

    if (set->residuals != NULL)
        g_hash_table_steal_extended(set->residuals, entry->name, &name, &kept);
    g_free(name);
    TensorResidual *const residual = kept;
    if (residual != NULL && is_of(residual, n_values, reduce))
        return residual;
    tensor_residual_free(residual);
    return tensor_residual_new(n_values, reduce);
}

bool residuals_take(const TensorSet *set, Operation *operation)
{
    operation->set_id = set->id;
    operation->set_serial = set->serial;
    operation->residuals = g_new0(TensorResidual *, operation->n_names);
    for (uint32_t k = 0; k < operation->n_names; k++) {
        operation->residuals[k] = take(set, entry_of(operation, k));
        if (operation->residuals[k] == NULL)
            return false;
    }
    return true;
}

/* Puts a residual beside what an operation of its name has given back since. (transfer full) */
static void give_back(GHashTable *kept, const char *name, TensorResidual *residual)
{
    const TensorResidual *const other = g_hash_table_lookup(kept, name);

    for (uint64_t i = 0; other != NULL && is_of(other, residual->n_values, &residual->reduce) &&
                         i < residual->n_values;
         i++) {
        residual->part[i] += other->part[i];
        residual->result[i] += other->result[i];
    }
    g_hash_table_replace(kept, g_strdup(name), residual);
}

void residuals_give_back(const TensorExchange *exchange, Operation *operation)
{
    /* the set may have been removed meanwhile */
    TensorSet *const set = operation->residuals == NULL ? NULL
                           : operation->set_id < exchange->sets->len
                               ? exchange->sets->pdata[operation->set_id]
                               : NULL;

    if (set == NULL || set->serial != operation->set_serial)
        return;
    if (set->residuals == NULL)
        set->residuals = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                               (GDestroyNotify)tensor_residual_free);
    for (uint32_t k = 0; k < operation->n_names; k++)
        if (g_hash_table_size(set->residuals) < MOST_NAMES)
            give_back(set->residuals, entry_of(operation, k)->name,
                      g_steal_pointer(&operation->residuals[k]));
}

void residuals_free(Operation *operation)
{
    for (uint32_t k = 0; operation->residuals != NULL && k < operation->n_names; k++)
        tensor_residual_free(operation->residuals[k]);
    g_free(operation->residuals);
}
