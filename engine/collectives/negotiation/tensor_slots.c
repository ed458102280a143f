/* What workers have asked before: see tensor_slots.h. */
#include "engine/collectives/negotiation/tensor_slots.h"

#include <string.h>

struct TensorSlots {
    uint32_t n_members;
    GPtrArray *slots; /* of TensorSlot, by id; NULL: the id is free */
    uint32_t n_names; /* of all slots */
    GHashTable *by_name;
    GQueue held;
};

static void slot_free(TensorSlot *slot)
{
    if (slot == NULL)
        return;
    for (uint32_t i = 0; i < slot->n_filled; i++) {
        g_free(slot->names[i]);
        g_free(slot->requests[i]);
    }
    g_free(slot->names);
    g_free(slot->requests);
    g_free(slot->is_one);
    g_free(slot->order);
    g_free(slot->held);
    g_free(slot);
}

TensorSlots *tensor_slots_new(uint32_t n_members)
{
    TensorSlots *const slots = g_new0(TensorSlots, 1);

    slots->n_members = n_members;
    slots->slots = g_ptr_array_new();
    slots->by_name = g_hash_table_new(g_str_hash, g_str_equal);
    return slots;
}

void tensor_slots_free(TensorSlots *slots)
{
    if (slots == NULL)
        return;
    for (guint id = 0; id < slots->slots->len; id++)
        slot_free(slots->slots->pdata[id]);
    g_ptr_array_unref(slots->slots);
    g_hash_table_unref(slots->by_name);
    g_free(slots);
}

static TensorSlot *slot_new(uint32_t id, uint32_t n, uint32_t n_members)
{
    TensorSlot *const slot = g_new0(TensorSlot, 1);

    *slot = (TensorSlot){ .id = id,
                          .n = n,
                          .names = g_new0(char *, n),
                          .held = g_new0(void *, n_members),
                          .requests = g_new0(TensorRequest *, n),
                          .is_one = g_new0(bool, n),
                          .order = g_new0(uint32_t, (size_t)n * n_members),
                          .link.data = slot };
    return slot;
}

uint32_t tensor_slots_begin(TensorSlots *slots, uint32_t n)
{
    uint32_t id = 0;

    if (n > TENSOR_SLOTS_MOST_NAMES - slots->n_names)
        return TENSOR_NO_SLOT;
    while (id < slots->slots->len && slots->slots->pdata[id] != NULL)
        id++;
    if (id == slots->slots->len)
        g_ptr_array_add(slots->slots, NULL);
    slots->slots->pdata[id] = slot_new(id, n, slots->n_members);
    slots->n_names += n;
    return id;
}

/* Nobody holds it: who has asked for one of its names in full does not ask by the slot before that
 * was decided. */
static void drop(TensorSlots *slots, TensorSlot *slot)
{
    for (uint32_t i = 0; i < slot->n; i++)
        g_hash_table_remove(slots->by_name, slot->names[i]);
    slots->slots->pdata[slot->id] = NULL;
    slots->n_names -= slot->n;
    slot_free(slot);
}

static bool are_same(const TensorRequest *requests, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (!tensor_request_is_same(&requests[0], &requests[i]))
            return false;
    return true;
}

void tensor_slots_add(TensorSlots *slots, uint32_t id, const char *name,
                      const TensorRequest *requests, const uint32_t *order)
{
    TensorSlot *const slot = slots->slots->pdata[id];
    const uint32_t i = slot->n_filled++;
    const bool is_one = are_same(requests, slots->n_members);

    slot->names[i] = g_strdup(name);
    slot->is_one[i] = is_one;
    slot->requests[i] = g_memdup2(requests, (is_one ? 1 : slots->n_members) * sizeof *requests);
    for (uint32_t place = 0; place < slots->n_members; place++)
        slot->order[(size_t)place * slot->n + i] = order == NULL ? i : order[place];
    if (slot->n_filled < slot->n)
        return;
    for (uint32_t k = 0; k < slot->n; k++) {
        TensorSlot *const earlier = g_hash_table_lookup(slots->by_name, slot->names[k]);

        if (earlier != NULL)
            drop(slots, earlier);
    }
    for (uint32_t k = 0; k < slot->n; k++)
        g_hash_table_insert(slots->by_name, slot->names[k], slot);
}

TensorSlot *tensor_slots_at(const TensorSlots *slots, uint32_t id)
{
    TensorSlot *const slot = id < slots->slots->len ? slots->slots->pdata[id] : NULL;

    return slot != NULL && slot->n_filled == slot->n ? slot : NULL;
}

TensorSlot *tensor_slots_of(const TensorSlots *slots, const char *name)
{
    return g_hash_table_lookup(slots->by_name, name);
}

const TensorRequest *tensor_slot_request(const TensorSlot *slot, uint32_t name, uint32_t place)
{
    return &slot->requests[name][slot->is_one[name] ? 0 : place];
}

uint32_t tensor_slot_ask(const TensorSlot *slot, uint32_t name, uint32_t place)
{
    return slot->order[(size_t)place * slot->n + name];
}

void tensor_slots_hold(TensorSlots *slots, TensorSlot *slot, uint32_t place, void *held)
{
    if (slot->n_held++ == 0)
        g_queue_push_tail_link(&slots->held, &slot->link);
    slot->held[place] = held;
}

void **tensor_slots_let_go(TensorSlots *slots, TensorSlot *slot)
{
    void **const held = g_memdup2(slot->held, slots->n_members * sizeof *held);

    if (slot->n_held > 0)
        g_queue_unlink(&slots->held, &slot->link);
    memset(slot->held, 0, slots->n_members * sizeof *held);
    slot->n_held = 0;
    return held;
}

uint32_t tensor_slots_end(const TensorSlots *slots)
{
    return slots->slots->len;
}

GList *tensor_slots_held(const TensorSlots *slots)
{
    return slots->held.head;
}

TensorSlot *tensor_slots_first_held(const TensorSlots *slots)
{
    return slots->held.head == NULL ? NULL : slots->held.head->data;
}

/* ---- as bytes ---- */

static void walk_slot(StateWalk *walk, TensorSlots *slots, uint32_t id)
{
    TensorSlot *slot = slots->slots->pdata[id];
    const size_t n = walk_count(walk, slot == NULL ? 0 : slot->n);

    if (n == 0)
        return;
    if (slot == NULL)
        slot = slots->slots->pdata[id] = slot_new(id, (uint32_t)n, slots->n_members);
    slots->n_names += walk_reads(walk) ? (uint32_t)n : 0;
    const size_t n_filled = walk_count(walk, slot->n_filled);

    walk->is_wrong |= n_filled > n;
    for (size_t i = 0; i < MIN(n_filled, n) && !walk->is_wrong; i++) {
        const size_t n_requests = WALK(walk, slot->is_one[i]) ? 1 : slots->n_members;

        walk_text(walk, &slot->names[i]);
        if (walk_reads(walk))
            slot->requests[i] = g_new0(TensorRequest, n_requests);
        slot->n_filled = (uint32_t)MAX(slot->n_filled, i + 1);
        for (size_t place = 0; place < n_requests; place++)
            tensor_request_walk(walk, &slot->requests[i][place]);
        walk->is_wrong |= slot->names[i] == NULL;
    }
    walk_u32s(walk, slot->order, n * slots->n_members);
    for (size_t i = 0; i < n && walk_reads(walk) && slot->n_filled == n && !walk->is_wrong; i++)
        g_hash_table_insert(slots->by_name, slot->names[i], slot);
}

static void walk_held(StateWalk *walk, TensorSlots *slots, TensorSlot *slot, TensorTagWalk tag)
{
    for (uint32_t place = 0; place < slots->n_members; place++) {
        const bool is_held = walk_number(walk, slot->held[place] != NULL) != 0;

        if (is_held && walk_reads(walk))
            tensor_slots_hold(slots, slot, place, tag(walk, NULL));
        else if (is_held)
            (void)tag(walk, slot->held[place]);
    }
}

void tensor_slots_walk(StateWalk *walk, TensorSlots *slots, TensorTagWalk tag)
{
    const size_t n = walk_count(walk, slots->slots->len);
    size_t n_held = walk_count(walk, slots->held.length);
    const GList *link = slots->held.head;

    g_ptr_array_set_size(slots->slots, (gint)n);
    for (uint32_t id = 0; id < n && !walk->is_wrong; id++)
        walk_slot(walk, slots, id);
    for (; n_held > 0 && !walk->is_wrong; n_held--) { /* in the order in which they are held */
        TensorSlot *slot = walk_reads(walk) ? NULL : link->data;
        const uint64_t id = walk_number(walk, slot == NULL ? 0 : slot->id);

        link = walk_reads(walk) ? NULL : link->next;
        slot = tensor_slots_at(slots, (uint32_t)id);
        walk->is_wrong |= slot == NULL;
        if (slot != NULL)
            walk_held(walk, slots, slot, tag);
    }
}
