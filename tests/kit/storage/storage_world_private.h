/* The inside of a run of a storage test, and its reference.
 *
 * Threads: that of the test case. */
#ifndef TESTS_KIT_STORAGE_STORAGE_WORLD_PRIVATE_H
#define TESTS_KIT_STORAGE_STORAGE_WORLD_PRIVATE_H

#include "tests/kit/storage/storage_world.h"

#define BLOCK RUBATO_STORAGE_BLOCK

struct StorageWorld {
    const StorageScenario *scenario;
    RubatoShardDriver *driver; /* NULL: it could not be made */
    const RubatoStorageOps *ops;
    RubatoStorage *storage;
    const RubatoUpdateOps *rule;
    const RubatoUpdate *update;
    size_t value_bytes, state_bytes; /* of a row */

    GHashTable *rows; /* the reference: of Row, by key; with row_of, by the key whose row it is */
    unsigned char *fresh; /* memory for a new row */

    /* What an op has returned, which holds until a row is made; the pointers for ever, if the
     * storage says that its rows stay. */
    RubatoKey held_keys[BLOCK];
    void *held_rows[BLOCK];
    size_t n_held;
    RubatoKey *listed;
    size_t n_listed;

    GString *story;
    char *failure;
};

/* The keys of an action in one of the forms of RubatoKeys, and values for them. */
typedef struct {
    RubatoKeys keys;
    RubatoKey *list;
    uint32_t *at;
    size_t n_rows; /* of values; some may belong to no key */
    unsigned char *values;
    size_t row_bytes;
} Call;

/* Something is wrong; the first time counts. */
void storage_fail(StorageWorld *world, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* ---- storage_call.c ---- */

/* Rows of values for the keys of an action, which nobody has written to. */
Call call_new(const StorageWorld *world, const StorageAction *action, size_t row_bytes);
void call_clear(Call *call);

/* Fills the rows; see values_fill. */
void call_fill(const StorageWorld *world, Call *call, uint32_t mark);

RubatoKey call_key(const RubatoKeys *keys, size_t i);
unsigned char *call_row(const Call *call, size_t i);

/* How many keys a run from `first` on may have. */
uint64_t storage_keys_from(const StorageScenario *scenario, RubatoKey first);

/* What a row that nobody has written to consists of. */
#define UNTOUCHED 0xa5

/* ---- storage_by_shard.c ---- */

void storage_perform_add(StorageWorld *world, const StorageAction *action);
void storage_perform_get(StorageWorld *world, const StorageAction *action);
void storage_perform_set(StorageWorld *world, const StorageAction *action);
void storage_perform_reset(StorageWorld *world, const StorageAction *action);

/* ---- storage_by_ops.c ---- */

void storage_perform_look_up(StorageWorld *world, const StorageAction *action);
void storage_perform_run(StorageWorld *world, const StorageAction *action);
void storage_perform_list(StorageWorld *world, const StorageAction *action);

/* All keys, so many at a time. NULL: they cannot be listed. (transfer full) */
RubatoKey *storage_list_keys(StorageWorld *world, size_t n_at_a_time, size_t *n);

/* Whether the storage says that its rows never move. */
bool storage_rows_stay(const StorageWorld *world);

/* Pointers that an op has returned are still those of their rows. */
void storage_check_held(StorageWorld *world);
void storage_check_size(StorageWorld *world);

/* ---- storage_reference.c ---- */

/* For a GHashTable of keys, which may have much in common. */
guint reference_hash(gconstpointer key);

void reference_init(StorageWorld *world);
void reference_clear(StorageWorld *world);

/* The row of a key, its values and the state behind them; NULL: nobody has made it. */
unsigned char *reference_find(const StorageWorld *world, RubatoKey key);

/* The same, but makes it. */
unsigned char *reference_make(StorageWorld *world, RubatoKey key);

/* Applies a row of deltas by the rule. */
void reference_apply(StorageWorld *world, RubatoKey key, const void *deltas);

/* The row as it has to be: an absent one has its initial values. Holds until the next call. */
const unsigned char *reference_read(StorageWorld *world, RubatoKey key);

/* Compares values, state, or both one behind the other (NULL: not asked) with a key's row. */
void reference_compare(StorageWorld *world, RubatoKey key, const void *values, const void *state,
                       const char *what);

/* Compares a row of the storage, which may be NULL. */
void reference_compare_row(StorageWorld *world, RubatoKey key, const void *row, const char *what);

#endif
