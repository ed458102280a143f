/* Sums over a clock, of a few Adds with sorted keys.
 *
 * A key's first row, in the order of the Adds, becomes its sum: the rows of later Adds are added to
 * it where it lies. Two sorted lists are gone through together to find the keys that they share.
 * So nothing is hashed, and only the rows of such keys are touched before the rule is applied.
 *
 * Rows come to the rule as they do from the hash table: all of the first Add, then those of the
 * second with keys that the first does not have, and so on.
 *
 * A byte for each row of an Add marks it: how many other workers have sent its key, as long as
 * the row is the key's first; SHARD_LEFT_OUT if it is not.
 *
 * Thread: the shard's present owner. */
#include <rubato/vector_clones.h>
#include <string.h>

#include "models/aggregate_private.h"

/* Each pair of Adds is gone through; more of them cost more than a hash table. */
#define ADDS_MOST 4u

#define CHECK_BLOCK 256u /* keys; a search ends with the first block that is not sorted */

typedef struct {
    const RubatoRequest *request;
    unsigned char *rows; /* of the request, which belongs to the model */
    uint8_t *marks;
} Add;

RUBATO_VECTOR_CLONES static bool is_ascending(const RubatoKey *keys, size_t n)
{
    bool ascends = true;

    for (size_t begin = 1; begin < n && ascends; begin += CHECK_BLOCK) {
        const size_t end = MIN(n, begin + CHECK_BLOCK);
        uint64_t n_wrong = 0;

        for (size_t i = begin; i < end; i++)
            n_wrong += keys[i] <= keys[i - 1];
        ascends = n_wrong == 0;
    }
    return ascends;
}

/* Whether an Add can be summed here, so far as its keys say. A mean counts each worker once, so
 * then a worker may have sent one Add alone. */
static bool fits(const Aggregate *aggregate, const RubatoRequest *request,
                 const RubatoRequest *before)
{
    const RubatoKeys *const keys = &request->keys;

    if (aggregate->is_mean && before != NULL && before->worker == request->worker)
        return false;
    return keys->keys == NULL || (keys->at == NULL && is_ascending(keys->keys, keys->n));
}

static bool are_good(const Aggregate *aggregate, const Add *adds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!shard_accepts_all(aggregate->shard, adds[i].rows, adds[i].request->keys.n))
            return false;
    return true;
}

/* Returns how many there are; 0: they have to be summed by the hash table. */
static size_t list_adds(const Aggregate *aggregate, RubatoRequest *first, Add *adds)
{
    const RubatoRequest *before = NULL;
    size_t n = 0;

    for (RubatoRequest *request = first; request != NULL; request = request->next) {
        if (n == ADDS_MOST || !fits(aggregate, request, before))
            return 0;
        adds[n++] = (Add){ .request = request, .rows = (unsigned char *)(uintptr_t)request->input };
        before = request;
    }
    return are_good(aggregate, adds, n) ? n : 0;
}

/* False if there is no memory. */
static bool make_marks(Aggregate *aggregate, Add *adds, size_t n)
{
    size_t n_marks = 0;

    for (size_t i = 0; i < n; i++)
        n_marks += adds[i].request->keys.n;
    if (n_marks > aggregate->n_marks_allocated) {
        g_free(aggregate->marks);
        aggregate->marks = g_try_malloc(n_marks);
        aggregate->n_marks_allocated = aggregate->marks == NULL ? 0 : n_marks;
    }
    if (aggregate->marks == NULL)
        return false;
    memset(aggregate->marks, 0, n_marks);
    n_marks = 0;
    for (size_t i = 0; i < n; i++) {
        adds[i].marks = aggregate->marks + n_marks;
        n_marks += adds[i].request->keys.n;
    }
    return true;
}

/* Both have the key of these rows. A row that is left out already is in an Add before both. */
static inline void join_rows(const Aggregate *aggregate, const Add *first, size_t i,
                             const Add *later, size_t j)
{
    if (later->marks[j] == SHARD_LEFT_OUT)
        return;
    aggregate_add_row(aggregate, first->rows + i * aggregate->row_bytes,
                      later->rows + j * aggregate->row_bytes);
    first->marks[i]++;
    later->marks[j] = SHARD_LEFT_OUT;
}

static void join_runs(const Aggregate *aggregate, const Add *first, const Add *later)
{
    const RubatoKeys *const a = &first->request->keys, *const b = &later->request->keys;
    const RubatoKey begin = MAX(a->first, b->first);
    const size_t i = begin - a->first, j = begin - b->first;

    for (size_t k = 0; i + k < a->n && j + k < b->n && i < a->n && j < b->n; k++)
        join_rows(aggregate, first, i + k, later, j + k);
}

static inline RubatoKey key_at(const RubatoKeys *keys, size_t i)
{
    return keys->keys == NULL ? keys->first + i : keys->keys[i];
}

/* Which list goes on cannot be predicted, so it is no branch. */
static void join_sorted(const Aggregate *aggregate, const Add *first, const Add *later)
{
    const RubatoKeys *const a = &first->request->keys, *const b = &later->request->keys;

    for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
        const RubatoKey x = key_at(a, i), y = key_at(b, j);

        if (x == y)
            join_rows(aggregate, first, i, later, j);
        i += x <= y;
        j += y <= x;
    }
}

static void join(const Aggregate *aggregate, const Add *first, const Add *later)
{
    if (first->request->keys.keys == NULL && later->request->keys.keys == NULL)
        join_runs(aggregate, first, later);
    else
        join_sorted(aggregate, first, later);
}

static void divide(const Aggregate *aggregate, const Add *add)
{
    for (size_t i = 0; i < add->request->keys.n; i++)
        if (add->marks[i] != 0 && add->marks[i] != SHARD_LEFT_OUT)
            aggregate_divide_row(aggregate, add->rows + i * aggregate->row_bytes,
                                 1u + add->marks[i]);
}

bool aggregate_apply_sorted(Aggregate *aggregate, RubatoRequest *first)
{
    Add adds[ADDS_MOST];
    const size_t n = list_adds(aggregate, first, adds);

    if (n == 0 || (n > 1 && !make_marks(aggregate, adds, n)))
        return false;
    for (size_t later = 1; later < n; later++)
        for (size_t i = 0; i < later; i++)
            join(aggregate, &adds[i], &adds[later]);
    for (size_t i = 0; i < n; i++) {
        if (aggregate->is_mean && n > 1)
            divide(aggregate, &adds[i]);
        shard_add_unmarked(aggregate->shard, &adds[i].request->keys, adds[i].rows, adds[i].marks);
    }
    return true;
}
