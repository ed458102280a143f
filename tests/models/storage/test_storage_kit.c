/* The kit's tests of storages and update rules themselves: they find what is broken, and tell it in
 * few words. Each case registers a storage or rule with one fault, in a process of its own. */
#include <rubato/mix.h>
#include <rubato/plugin.h>
#include <rubato/testing.h>
#include <string.h>

#include "tests/support/runner.h"

/* ---- a storage with a fault: rows in a list, each with its key ---- */

typedef enum {
    FAULT_NONE,
    FAULT_NO_INIT,    /* new rows are zero, whatever the table says */
    FAULT_NO_STATE,   /* new rows have no initial state */
    FAULT_GET_MAKES,  /* find makes a row */
    FAULT_LAST_KEY,   /* the last key is taken for none */
    FAULT_ZERO_KEY,   /* key 0 is not found again */
    FAULT_REPEATS,    /* a key that comes twice in a call gets two rows */
    FAULT_LIST_TWICE, /* the first key is listed twice */
    FAULT_LIST_ORDER, /* the order depends on where the list begins */
    FAULT_SIZE,       /* one row is not counted */
    FAULT_RUN,        /* consecutive rows, of other keys */
    FAULT_MOVES,      /* find moves rows */
    FAULT_STAYS,      /* says that rows stay, and moves them when others are created */
    FAULT_OVERLAP,    /* each row has the end of the one before it */
    FAULT_FORGETS,    /* rows are lost when there are many */
    FAULT_ABORTS,     /* asks for memory by what cannot fail */
    FAULT_NO_MEMORY,  /* forgets a row when there is no memory */
    FAULT_SIZE_BYTES, /* tells no bytes */
} Fault;

static Fault fault;

typedef struct {
    RubatoStorage base;
    size_t row_bytes;
    const RubatoInit *init;
    uint32_t n_rows, n_slots; /* at most half of them are used */
    uint32_t *slots;          /* the number of a row, from 1 on; 0: free */
    GPtrArray *former;        /* rows that have moved; pointers to them can still be read */
    RubatoKey *keys;          /* by number */
    void **rows;
} Listed;

static bool grow(Listed *listed);

static RubatoStorage *create(const RubatoStorageSetup *setup, GError **error)
{
    Listed *listed = g_new0(Listed, 1);

    (void)error;
    listed->row_bytes = setup->row_bytes;
    listed->init = setup->init;
    listed->former = g_ptr_array_new_with_free_func(g_free);
    (void)grow(listed);
    return &listed->base;
}

static void destroy(RubatoStorage *storage)
{
    Listed *listed = (Listed *)storage;

    for (uint32_t number = 0; number < listed->n_rows; number++)
        g_free(listed->rows[number]);
    g_ptr_array_unref(listed->former);
    g_free(listed->slots);
    g_free(listed->keys);
    g_free(listed->rows);
    g_free(listed);
}

/* The key's slot, or the free one for it. */
static uint32_t *slot_of(Listed *listed, RubatoKey key)
{
    uint32_t at = (uint32_t)rubato_mix64(key) % listed->n_slots;

    while (listed->slots[at] != 0 && listed->keys[listed->slots[at] - 1] != key)
        at = (at + 1) % listed->n_slots;
    return &listed->slots[at];
}

/* Twice as many slots. */
static bool grow(Listed *listed)
{
    const uint32_t n_slots = listed->n_slots == 0 ? 64 : 2 * listed->n_slots;
    RubatoKey *keys = g_try_renew(RubatoKey, listed->keys, n_slots);

    listed->keys = keys != NULL ? keys : listed->keys;
    void **rows = keys == NULL ? NULL : g_try_renew(void *, listed->rows, n_slots);
    listed->rows = rows != NULL ? rows : listed->rows;
    uint32_t *slots = rows == NULL ? NULL : g_try_new0(uint32_t, n_slots);
    if (slots == NULL)
        return false;
    g_free(listed->slots);
    listed->slots = slots;
    listed->n_slots = n_slots;
    for (uint32_t number = 0; number < listed->n_rows; number++)
        *slot_of(listed, listed->keys[number]) = number + 1;
    return true;
}

static void *find_one(Listed *listed, RubatoKey key)
{
    const uint32_t number = *slot_of(listed, key);

    if ((fault == FAULT_ZERO_KEY && key == 0) || (fault == FAULT_FORGETS && listed->n_rows > 200))
        return NULL;
    return number == 0 ? NULL : listed->rows[number - 1];
}

static void *make_one(Listed *listed, RubatoKey key)
{
    const uint32_t number = listed->n_rows;
    void *row =
        fault == FAULT_ABORTS ? g_malloc0(listed->row_bytes) : g_try_malloc0(listed->row_bytes);

    if (row == NULL || (number == listed->n_slots / 2 && !grow(listed))) {
        g_free(row);
        if (fault == FAULT_NO_MEMORY && number > 0)
            memset(listed->rows[0], 1, listed->row_bytes);
        return NULL;
    }
    if (fault == FAULT_OVERLAP && number > 0) {
        g_free(row);
        row = listed->rows[number - 1];
        listed->rows[number - 1] = NULL;
    } else if (fault != FAULT_NO_INIT) {
        rubato_init_row(listed->init, key, row);
    }
    if (fault == FAULT_NO_STATE)
        memset((unsigned char *)row + listed->row_bytes / 2, 0,
               listed->row_bytes - listed->row_bytes / 2);
    *slot_of(listed, key) = number + 1;
    listed->keys[number] = key;
    listed->rows[number] = row;
    listed->n_rows++;
    return row;
}

static void *move_one(Listed *listed, uint32_t number)
{
    void *moved = g_memdup2(listed->rows[number], listed->row_bytes);

    memset(listed->rows[number], 0xa5, listed->row_bytes);
    g_ptr_array_add(listed->former, listed->rows[number]);
    return listed->rows[number] = moved;
}

static void find(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    Listed *listed = (Listed *)storage;

    for (size_t i = 0; i < n; i++) {
        rows[i] = find_one(listed, keys[i]);
        if (rows[i] == NULL && fault == FAULT_GET_MAKES)
            rows[i] = make_one(listed, keys[i]);
        if (rows[i] != NULL && fault == FAULT_MOVES)
            rows[i] = move_one(listed, *slot_of(listed, keys[i]) - 1);
    }
}

static bool rows_stay(const RubatoStorage *storage)
{
    (void)storage;
    return fault == FAULT_STAYS;
}

static bool is_among(void *row, void *const *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i] == row)
            return true;
    return false;
}

static void move_others(Listed *listed, void *const *rows, size_t n)
{
    for (uint32_t number = 0; number < listed->n_rows; number++)
        if (!is_among(listed->rows[number], rows, n))
            (void)move_one(listed, number);
}

static bool find_or_create(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    Listed *listed = (Listed *)storage;
    const uint32_t n_before = listed->n_rows;

    for (size_t i = 0; i < n; i++) {
        const RubatoKey key = fault == FAULT_LAST_KEY && keys[i] == UINT64_MAX ? 0 : keys[i];

        rows[i] = find_one(listed, key);
        if (rows[i] == NULL || (fault == FAULT_REPEATS && i > 0 && keys[i] == keys[i - 1]))
            rows[i] = make_one(listed, key);
        if (rows[i] == NULL)
            return false;
    }
    if (fault == FAULT_STAYS && listed->n_rows > n_before)
        move_others(listed, rows, n);
    return true;
}

static void *run(RubatoStorage *storage, RubatoKey first, size_t n)
{
    Listed *listed = (Listed *)storage;

    return fault == FAULT_RUN && n == 1 && listed->n_rows > 1 && first > 0 ? listed->rows[0] : NULL;
}

static void list(const RubatoStorage *storage, uint64_t first, size_t n, RubatoKey *keys)
{
    const Listed *listed = (const Listed *)storage;

    for (size_t i = 0; i < n; i++)
        keys[i] = listed->keys[first + i];
    if (fault == FAULT_LIST_TWICE && first == 0 && n > 1)
        keys[1] = keys[0];
    if (fault == FAULT_LIST_ORDER && n > 2) {
        const RubatoKey key = keys[n - 1];

        keys[n - 1] = keys[0];
        keys[0] = key;
    }
}

static void size(const RubatoStorage *storage, uint64_t *n_rows, uint64_t *n_bytes)
{
    const Listed *listed = (const Listed *)storage;

    *n_rows = listed->n_rows - (fault == FAULT_SIZE && listed->n_rows > 3);
    *n_bytes = fault == FAULT_SIZE_BYTES ? 1 : listed->n_rows * listed->row_bytes + 1;
}

static const RubatoStorageOps listed_ops = {
    .name = "listed",
    .create = create,
    .destroy = destroy,
    .find = find,
    .find_or_create = find_or_create,
    .rows_stay = rows_stay,
    .run = run,
    .list = list,
    .size = size,
};

static const struct {
    Fault fault;
    const char *says;
} faults[] = {
    { FAULT_NO_INIT, "it has to be" },
    { FAULT_NO_STATE, "it has to be" },
    { FAULT_GET_MAKES, "" },
    { FAULT_LAST_KEY, "" },
    { FAULT_ZERO_KEY, "key 0" },
    { FAULT_REPEATS, "" },
    { FAULT_LIST_TWICE, "is in it twice" },
    { FAULT_LIST_ORDER, "the order has changed" },
    { FAULT_SIZE, "size: " },
    { FAULT_RUN, "run" },
    { FAULT_MOVES, "through the same pointer" },
    { FAULT_STAYS, "through the same pointer" },
    { FAULT_OVERLAP, "" },
    { FAULT_FORGETS, "" },
    { FAULT_ABORTS, "no memory: its process was ended by signal" },
    { FAULT_NO_MEMORY, "no memory: a row that was there before has other values" },
    { FAULT_SIZE_BYTES, "bytes; a row has" },
};

static char *story_of(Fault kind)
{
    const RubatoStorageTest test = { .spec = { .storage = "listed" },
                                     .n_seeds = is_slow() ? 60 : 300 };

    fault = kind;
    ck_assert(rubato_register_storage(&listed_ops, NULL));
    return rubato_test_storage_story(&test);
}

static void check_story(const char *story, const char *says, unsigned max_lines)
{
    unsigned n_lines = 0;

    ck_assert_ptr_nonnull(story);
    for (const char *c = story; *c != '\0'; c++)
        n_lines += *c == '\n';
    ck_assert_msg(n_lines <= max_lines, "%s", story);
    ck_assert_msg(strstr(story, says) != NULL, "%s", story);
    ck_assert_msg(strstr(story, "\nseed ") != NULL, "%s", story);
}

START_TEST(storage_without_fault_passes)
{
    g_autofree char *story = story_of(FAULT_NONE);

    ck_assert_msg(story == NULL, "%s", story);
}
END_TEST

START_TEST(each_fault_of_a_storage_is_found_and_told_in_few_lines)
{
    const char *sanitize = g_getenv("RUBATO_SANITIZE");

    if (strstr(faults[_i].says, "no memory") != NULL && sanitize != NULL && *sanitize != '\0')
        return; /* a sanitizer has memory of its own */
    g_autofree char *story = story_of(faults[_i].fault);
    check_story(story, faults[_i].says, 10);
}
END_TEST

START_TEST(storage_that_nobody_has_registered_is_named)
{
    g_autofree char *story =
        rubato_test_storage_story(&(RubatoStorageTest){ .spec = { .storage = "none" } });

    check_story(story, "there is no storage \"none\"", 5);
}
END_TEST

/* ---- keys that share rows ---- */

static RubatoKey folded(RubatoKey key, void *user)
{
    return key % *(const uint64_t *)user;
}

static void *make_or_find(Listed *listed, RubatoKey key)
{
    void *row = find_one(listed, key);

    return row == NULL ? make_one(listed, key) : row;
}

static void find_folded(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    for (size_t i = 0; i < n; i++)
        rows[i] = make_or_find((Listed *)storage, keys[i] % 7);
}

static bool create_folded(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    for (size_t i = 0; i < n; i++) {
        const RubatoKey key = keys[i] % 7;

        if (!find_or_create(storage, &key, 1, &rows[i]))
            return false;
    }
    return true;
}

START_TEST(storage_of_shared_rows_is_compared_with_those)
{
    static uint64_t n_rows = 7;
    RubatoStorageOps ops = listed_ops;
    RubatoStorageTest test = { .spec = { .storage = "folding" },
                               .row_of = folded,
                               .user = &n_rows };

    ops.name = "folding";
    ops.find = find_folded;
    ops.find_or_create = create_folded;
    ops.list = NULL;
    ck_assert(rubato_register_storage(&ops, NULL));
    g_autofree char *story = rubato_test_storage_story(&test);
    ck_assert_msg(story == NULL, "%s", story);
    n_rows = 8;
    g_autofree char *wrong = rubato_test_storage_story(&test);
    ck_assert_ptr_nonnull(wrong);
    test.row_of = NULL;
    g_autofree char *apart = rubato_test_storage_story(&test);
    ck_assert_ptr_nonnull(apart);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("storage kit");
    TCase *tcase = tcase_create("storages");

    tcase_add_test(tcase, storage_without_fault_passes);
    tcase_add_loop_test(tcase, each_fault_of_a_storage_is_found_and_told_in_few_lines, 0,
                        G_N_ELEMENTS(faults));
    tcase_add_test(tcase, storage_that_nobody_has_registered_is_named);
    tcase_add_test(tcase, storage_of_shared_rows_is_compared_with_those);
    tcase_set_timeout(tcase, 20);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
