/* Dense storage: the rows of a range of keys, one after the other.
 *
 * The row of a key is computed from the pointer that `run` returns for the whole range, so nothing
 * has to be found. The rows begin on a cache line. Large ranges are mapped: their pages are zero
 * until the first write, and huge pages avoid most misses of the translation buffer for random
 * reads.
 *
 * Thread: the shard's present owner. The rows never move. */
#include <assert.h>
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "io/memory_room.h"
#include "models/spec.h"
#include "models/storage/memory_home.h"
#include "models/storage/storage.h"

#define ALIGNMENT 64u
#define MAP_FROM_BYTES ((size_t)1 << 20)

typedef struct {
    RubatoStorage base;
    RubatoKey first_key;
    uint64_t n_keys;
    size_t row_bytes;
    size_t n_bytes; /* allocated */
    unsigned char *rows;
} DenseStorage;

static bool check(const RubatoTableSpec *spec, GError **error)
{
    if (spec->create_on_get)
        return spec_refuse_idle(spec, "create_on_get", "the storage \"hash\"", error);
    if (spec->n_keys == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: dense storage needs n_keys, the number of keys from first_key on; "
                    "for any keys take the storage \"hash\"",
                    spec->name);
        return false;
    }
    if (spec->n_keys - 1 > UINT64_MAX - spec->first_key) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: first_key %" G_GUINT64_FORMAT " and n_keys %" G_GUINT64_FORMAT
                    " lead beyond the last key there is, %" G_GUINT64_FORMAT,
                    spec->name, spec->first_key, spec->n_keys, UINT64_MAX);
        return false;
    }
    return true;
}

/* Fresh pages, or NULL. */
static unsigned char *allocate_rows(size_t n_bytes)
{
    if (!memory_leaves_room(n_bytes))
        return NULL;
    if (n_bytes < MAP_FROM_BYTES) {
        unsigned char *rows = aligned_alloc(ALIGNMENT, n_bytes);

        return rows == NULL ? NULL : memset(rows, 0, n_bytes);
    }

    void *rows = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rows == MAP_FAILED)
        return NULL;
    memory_home_take(memory_home(), rows, n_bytes);
    (void)madvise(rows, n_bytes, MADV_HUGEPAGE); /* advice: a kernel without them serves as well */
    return rows;
}

static RubatoStorage *create(const RubatoStorageSetup *setup, GError **error)
{
    const uint64_t max_rows = (SIZE_MAX / 2) / setup->row_bytes;
    const size_t used = setup->n_keys > max_rows ? 0 : (size_t)setup->n_keys * setup->row_bytes;
    const size_t n_bytes = MAX(used + ALIGNMENT - 1, ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    unsigned char *rows = setup->n_keys > max_rows ? NULL : allocate_rows(n_bytes);

    if (rows == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for %" G_GUINT64_FORMAT
                    " rows of %zu bytes on one server; spread the table over more servers, or take "
                    "the storage \"hash\" if few of its keys are used",
                    setup->spec->name, setup->n_keys, setup->row_bytes);
        return NULL;
    }

    DenseStorage *dense = g_new0(DenseStorage, 1);
    dense->first_key = setup->first_key;
    dense->n_keys = setup->n_keys;
    dense->row_bytes = setup->row_bytes;
    dense->n_bytes = n_bytes;
    dense->rows = rows;
    if (!rubato_init_is_zero(setup->init))
        rubato_init_run(setup->init, setup->first_key, setup->n_keys, rows);
    return &dense->base;
}

static void destroy(RubatoStorage *storage)
{
    DenseStorage *dense = (DenseStorage *)storage;

    if (dense->n_bytes < MAP_FROM_BYTES)
        free(dense->rows);
    else
        munmap(dense->rows, dense->n_bytes);
    g_free(dense);
}

static void *run(RubatoStorage *storage, RubatoKey first, size_t n)
{
    const DenseStorage *dense = (DenseStorage *)storage;
    const uint64_t offset = first - dense->first_key;

    assert(offset <= dense->n_keys && n <= dense->n_keys - offset);
    (void)n;
    return dense->rows + offset * dense->row_bytes;
}

static void size(const RubatoStorage *storage, uint64_t *n_rows, uint64_t *n_bytes)
{
    const DenseStorage *dense = (const DenseStorage *)storage;

    *n_rows = dense->n_keys;
    *n_bytes = dense->n_bytes + sizeof(*dense);
}

const RubatoStorageOps dense_storage_ops = {
    .name = "dense",
    .holds_range = true,
    .check = check,
    .create = create,
    .destroy = destroy,
    .run = run,
    .size = size,
};
