/* A shard and a model over it, driven by hand: one worker per node, so that clocks come from the
 * same numbers under every model. The rows are i64, one value wide.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_ENGINE_MODEL_RIG_H
#define TESTS_SUPPORT_ENGINE_MODEL_RIG_H

#include "models/model.h"

#define RIG_KEYS 64
#define RIG_MAX_WORKERS 8

typedef struct {
    RubatoTableSpec spec;
    RubatoShard *shard;
    RubatoModel *model;
    uint32_t n_workers;
} ModelRig;

/* A Get whose answer the test waits for. */
typedef struct {
    RubatoRequest request; /* first */
    RubatoKey keys[8];
    int64_t values[8];
    bool is_answered;
} RigGet;

/* It uses the spec's model, storage, record, staleness and speculation, and fills in the rest. */
void rig_init(ModelRig *rig, const RubatoTableSpec *spec, uint32_t n_workers);

/* Checks that no Get is parked. */
void rig_clear(ModelRig *rig);

/* Begins a Get of n keys, or of key 0 if keys is NULL; get->is_answered tells whether it is
 * answered. It has room for its rows, unless the model's make_room is set. */
void rig_get(ModelRig *rig, RigGet *get, uint32_t worker, uint64_t clock, const RubatoKey *keys,
             size_t n);

/* Begins the next iteration of a worker, in one, as a Get of its keys. */
void rig_iterate(ModelRig *rig, RigGet *get, uint32_t worker, uint64_t clock, const RubatoKey *keys,
                 size_t n);

void rig_add(ModelRig *rig, uint32_t worker, uint64_t clock, RubatoKey key, int64_t delta);
void rig_announce(ModelRig *rig, uint32_t worker, uint64_t clock, const RubatoKey *keys, size_t n);

/* The same for some of the n_all keys of an iteration. */
void rig_announce_part(ModelRig *rig, uint32_t worker, uint64_t clock, const RubatoKey *keys,
                       size_t n, uint64_t n_all);

void rig_clock(ModelRig *rig, uint32_t worker, uint64_t clock);

/* The row of a key, read without the model. */
int64_t rig_read(ModelRig *rig, RubatoKey key);

#endif
