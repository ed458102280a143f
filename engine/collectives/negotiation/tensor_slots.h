/* What the workers of a set have asked before, so that they can ask it again in a few bytes, and be
 * answered in a few.
 *
 * A slot is what all workers asked together: a name, or a group of names, and the request of each
 * worker for each of them. It is filled once all of them have asked in full and the operation runs.
 * All nodes learn its id with this decision. From then on a worker that asks for the same says the
 * id alone, and once all have said it, nothing is left to be compared.
 *
 * Why an id means the same wherever it is said: a slot is dropped only where another one is filled
 * that has one of its names. All workers have then asked for that name, and none of them can ask
 * again before its node has learnt the decision, and has dropped the slot, too. For the same reason
 * the id is free again at once. A slot that would be one too many is not filled: its names go on
 * being asked in full.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_COLLECTIVES_NEGOTIATION_TENSOR_SLOTS_H
#define RUBATO_ENGINE_COLLECTIVES_NEGOTIATION_TENSOR_SLOTS_H

#include "engine/collectives/negotiation/tensor_request.h"

#define TENSOR_NO_SLOT UINT32_MAX

/* Of all slots of a set together. */
enum { TENSOR_SLOTS_MOST_NAMES = 8192 };

typedef struct {
    uint32_t id;
    uint32_t n; /* names */
    char **names;
    void **held; /* by place: what a worker that asks again is known by; NULL: it does not */
    uint32_t n_held;

    uint32_t n_filled;        /* names that are there */
    TensorRequest **requests; /* by name: by place, or one for all */
    bool *is_one;             /* by name: one for all */
    uint32_t *order;          /* by place, n each: which of a worker's asks the name was */
    uint64_t together_bytes;  /* the owner's: tensor_fusion.c; at first 0, as all of the owner's */
    bool is_told, is_in_full; /* the owner's: tensor_exchange_rounds.c */
    GList link;               /* among those that some have asked for again */
} TensorSlot;

typedef struct TensorSlots TensorSlots;

/* (transfer full) */
TensorSlots *tensor_slots_new(uint32_t n_members);

/* What is held is not freed. NULL is allowed. */
void tensor_slots_free(TensorSlots *slots);

/* A slot for n names, which are added one by one, each with the requests by place, and which of the
 * worker's asks it was (order NULL: all of them ask in the order of the names). It is there once it
 * has all of them. The lowest id that is free; TENSOR_NO_SLOT: it would be one too many. */
uint32_t tensor_slots_begin(TensorSlots *slots, uint32_t n);
void tensor_slots_add(TensorSlots *slots, uint32_t id, const char *name,
                      const TensorRequest *requests, const uint32_t *order);

/* NULL: there is none. */
TensorSlot *tensor_slots_at(const TensorSlots *slots, uint32_t id);
TensorSlot *tensor_slots_of(const TensorSlots *slots, const char *name);

const TensorRequest *tensor_slot_request(const TensorSlot *slot, uint32_t name, uint32_t place);

/* Which of a worker's asks the name was. */
uint32_t tensor_slot_ask(const TensorSlot *slot, uint32_t name, uint32_t place);

/* A worker asks again, which it did not since the slot was let go. held: not NULL. */
void tensor_slots_hold(TensorSlots *slots, TensorSlot *slot, uint32_t place, void *held);

/* What was held, by place. (transfer container) */
void **tensor_slots_let_go(TensorSlots *slots, TensorSlot *slot);

/* Ids are below this. */
uint32_t tensor_slots_end(const TensorSlots *slots);

/* Slots that are held, in the order in which they came; NULL: there are none. (transfer none) */
GList *tensor_slots_held(const TensorSlots *slots);

/* The slot that has been held longest; NULL: none is. */
TensorSlot *tensor_slots_first_held(const TensorSlots *slots);

/* Walks through what a request is known by: writes it; or, where it is NULL, reads one. */
typedef void *(*TensorTagWalk)(StateWalk *walk, void *tag);

/* The same of all slots; of new ones if it reads. What the owner keeps in a slot is left out. */
void tensor_slots_walk(StateWalk *walk, TensorSlots *slots, TensorTagWalk tag);

#endif
