/* What a node's workers ask again (tensor_slots.h). See tensor_exchange_private.h.
 *
 * Each node fills the slots of its sets from the same decisions as the coordinator, and so has the
 * same ids. Its places are those of its own workers. On several nodes a slot holds what they have
 * asked again, until that is decided; on one node the matchers' slots do. */
#include <string.h>

#include "engine/collectives/tensor_exchange_private.h"

static bool is_pending(const TensorSet *set, uint32_t local, const TensorSlot *slot)
{
    GHashTable *const asked = set->asked == NULL ? NULL : set->asked[local];
    bool any = false;

    for (uint32_t i = 0; asked != NULL && g_hash_table_size(asked) > 0 && i < slot->n && !any; i++)
        any = g_hash_table_contains(asked, slot->names[i]);
    return any;
}

TensorSlot *exchange_find_again(const TensorExchange *exchange, const TensorSet *set,
                                uint32_t local, const TensorEntry *entries, size_t n)
{
    TensorSlot *const slot =
        exchange->place.asks_in_full ? NULL : tensor_slots_of(set->slots, entries->name);

    if (slot == NULL || slot->n != n || slot->held[local] != NULL)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        const TensorEntry *const entry = &entries[tensor_slot_ask(slot, i, local)];

        if (strcmp(entry->name, slot->names[i]) != 0 ||
            !tensor_request_is_same(&entry->part.request, tensor_slot_request(slot, i, local)))
            return NULL;
    }
    return is_pending(set, local, slot) ? NULL : slot;
}

TensorEntry *exchange_entry_of(const TensorSlot *slot, uint32_t name, uint32_t local, void *held)
{
    return (TensorEntry *)held + tensor_slot_ask(slot, name, local);
}

TensorEntry **exchange_entries_of(const TensorSlot *slot, uint32_t n_local, void *const *held)
{
    TensorEntry **const entries = g_new(TensorEntry *, (size_t)slot->n * n_local);

    for (uint32_t local = 0; local < n_local; local++)
        for (uint32_t i = 0; i < slot->n; i++)
            entries[(size_t)i * n_local + local] = exchange_entry_of(slot, i, local, held[local]);
    return entries;
}

bool exchange_fill(TensorSet *set, uint32_t id, const char *name, TensorEntry *const *entries)
{
    g_autofree TensorRequest *requests = g_new(TensorRequest, set->n_local);
    g_autofree uint32_t *order = g_new(uint32_t, set->n_local);
    const uint32_t n = entries[0]->n_group;

    for (uint32_t i = 0; i < set->n_local; i++) {
        if (entries[i]->n_group != n)
            return false;
        requests[i] = entries[i]->part.request;
        order[i] = (uint32_t)(entries[i] - entries[i]->first);
    }
    if (set->n_to_come == 0) {
        set->n_to_come = set->n_of_group = n;
        set->filling = tensor_slots_begin(set->slots, n);
    }
    if (n != set->n_of_group || set->filling == TENSOR_NO_SLOT || set->filling != id)
        return false;
    set->n_to_come--;
    tensor_slots_add(set->slots, id, name, requests, order);
    return true;
}

static void look_up(TensorSet *set, TensorSlot *slot)
{
    g_autofree void **held = tensor_slots_let_go(set->slots, slot);

    slot->is_told = false;
    for (uint32_t local = 0; local < set->n_local; local++)
        for (uint32_t i = 0; held[local] != NULL && i < slot->n; i++) {
            TensorEntry *const entry = exchange_entry_of(slot, i, local, held[local]);

            g_hash_table_insert(set->asked[local], (void *)(uintptr_t)entry->name, entry);
        }
}

void exchange_look_up(TensorSet *set, const char *name)
{
    TensorSlot *const slot = tensor_slots_of(set->slots, name);

    if (slot != NULL && slot->n_held > 0)
        look_up(set, slot);
}

void exchange_look_up_all(TensorSet *set)
{
    TensorSlot *slot;

    while ((slot = tensor_slots_first_held(set->slots)) != NULL)
        look_up(set, slot);
}

void exchange_take_pending(TensorSet *set, GPtrArray *entries)
{
    set->n_verdicts++;
    exchange_look_up_all(set);
    for (uint32_t i = 0; i < set->n_local; i++) {
        GHashTableIter iter;
        gpointer entry;

        g_hash_table_iter_init(&iter, set->asked[i]);
        while (g_hash_table_iter_next(&iter, NULL, &entry)) {
            g_ptr_array_add(entries, entry);
            g_hash_table_iter_remove(&iter);
        }
    }
}

/* ---- the matchers of a single node ---- */

static void *tag(void *user, const TensorSlot *slot, uint32_t name, uint32_t place, void *held)
{
    TensorExchange *const exchange = user;
    const TensorSet *const set = exchange_set(exchange, ((const TensorEntry *)held)->set);
    TensorEntry *const entry =
        exchange_entry_of(tensor_slots_at(set->slots, slot->id), name, place, held);

    g_hash_table_add(exchange->pending, entry);
    return entry;
}

static void drop(void *user, void *held)
{
    (void)user;
    (void)held;
}

static void untag(void *user, void *entry)
{
    g_hash_table_remove(((TensorExchange *)user)->pending, entry);
}

const TensorRecall exchange_recall = { .tag = tag, .drop = drop, .untag = untag };
