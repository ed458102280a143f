/* One run of a storage test: a shard over the storage, and beside it a reference that keeps the row
 * of each key by itself.
 *
 * Threads: that of the test case. */
#ifndef TESTS_KIT_STORAGE_STORAGE_WORLD_H
#define TESTS_KIT_STORAGE_STORAGE_WORLD_H

#include <rubato/testing.h>

#define MAX_LISTED 8

typedef enum {
    STORAGE_ACTION_ADD, /* by the shard, as workers do */
    STORAGE_ACTION_GET,
    STORAGE_ACTION_SET,
    STORAGE_ACTION_RESET,
    STORAGE_ACTION_GET_STATE,
    STORAGE_ACTION_SET_STATE,
    STORAGE_ACTION_FIND, /* by the storage's ops */
    STORAGE_ACTION_CREATE,
    STORAGE_ACTION_RUN,
    STORAGE_ACTION_LIST,
    STORAGE_ACTION_MOVE, /* all rows go to another shard, which takes the place of this one */
    STORAGE_ACTION_N_KINDS,
} StorageActionKind;

typedef enum {
    STORAGE_FORM_LIST,
    STORAGE_FORM_SELECTION,
    STORAGE_FORM_RUN,    /* consecutive keys */
    STORAGE_FORM_SERIES, /* a list of the keys of consecutive numbers */
} StorageForm;

typedef struct {
    StorageActionKind kind;
    StorageForm form;
    uint8_t n_keys;            /* of a list or selection */
    uint32_t keys[MAX_LISTED]; /* by number: see storage_key */
    uint32_t count; /* of a run or series, from keys[0] on; LIST, MOVE: how many at a time */
    uint32_t mark;  /* of what is written */
} StorageAction;

/* What a run is besides its actions. */
typedef struct {
    uint64_t seed, hash_seed;
    RubatoTableSpec spec; /* whole */
    bool holds_range;
    RubatoKey (*row_of)(RubatoKey key, void *user);
    void *user;
} StorageScenario;

typedef struct StorageWorld StorageWorld;

/* The key of a number: 0, 2^64 - 1, or one of several patterns; in a range, one of its keys. */
RubatoKey storage_key(const StorageScenario *scenario, uint32_t number);

/* Begins a run. story: what happens is written to it; NULL: not. (transfer full) */
StorageWorld *storage_world_new(const StorageScenario *scenario, GString *story);
void storage_world_free(StorageWorld *world);

/* Performs an action, if the storage can do it. */
void storage_world_perform(StorageWorld *world, const StorageAction *action);

/* Looks at every row. */
void storage_world_end(StorageWorld *world);

/* What was wrong first; NULL: nothing. */
const char *storage_world_failure(const StorageWorld *world);

/* ---- storage_memory.c ---- */

/* What a storage does when there is no memory. The story of what is wrong; NULL: nothing. (transfer
 * full) */
char *storage_memory_story(const StorageScenario *scenario);

#endif
