/* Rows of a chain of files. */
#include "io/store/chain_rows.h"

#include <rubato/error.h>
#include <string.h>

void chain_rows_init(ChainRows *chain, const PartShape *shape, const PartTaker *taker)
{
    *chain = (ChainRows){ .taker = taker,
                          .shape = *shape,
                          .covers = g_array_new(FALSE, FALSE, sizeof(KeyCover)),
                          .keys = g_array_new(FALSE, FALSE, sizeof(RubatoKey)),
                          /* which has memory also for rows without values */
                          .values = g_byte_array_sized_new(MAX(1, (guint)shape->value_bytes)),
                          .states = g_byte_array_new(),
                          .lengths = g_array_new(FALSE, FALSE, sizeof(uint32_t)) };
}

void chain_rows_clear(ChainRows *chain)
{
    for (guint i = 0; i < chain->covers->len; i++)
        key_cover_clear(&g_array_index(chain->covers, KeyCover, i));
    g_array_unref(chain->covers);
    g_array_unref(chain->keys);
    g_byte_array_unref(chain->values);
    g_byte_array_unref(chain->states);
    g_array_unref(chain->lengths);
}

static bool is_newer(const ChainRows *chain, RubatoKey key)
{
    for (guint i = 0; i < chain->covers->len; i++)
        if (key_cover_has(&g_array_index(chain->covers, KeyCover, i), key))
            return true;
    return false;
}

static RubatoKey key_at(const RubatoSnapshotRows *rows, size_t i)
{
    return rows->keys != NULL ? rows->keys[i] : rows->first + i;
}

static size_t row_bytes(const ChainRows *chain, const RubatoSnapshotRows *rows, size_t i)
{
    return rows->lengths != NULL ? rows->lengths[i] * chain->shape.value_bytes
                                 : chain->shape.row_bytes;
}

static void append(GByteArray *array, const unsigned char *bytes, size_t n)
{
    if (n > 0)
        g_byte_array_append(array, bytes, (guint)n);
}

/* Copies the rows that no newer file covers: those of a record, whose bytes fit 32 bits. */
static RubatoSnapshotRows take_out(ChainRows *chain, const RubatoSnapshotRows *rows)
{
    const unsigned char *value = rows->values, *state = rows->states;

    g_array_set_size(chain->keys, 0);
    g_array_set_size(chain->lengths, 0);
    g_byte_array_set_size(chain->values, 0);
    g_byte_array_set_size(chain->states, 0);
    for (size_t i = 0; i < rows->n; i++) {
        const RubatoKey key = key_at(rows, i);
        const size_t n_bytes = row_bytes(chain, rows, i);

        if (!is_newer(chain, key)) {
            g_array_append_val(chain->keys, key);
            append(chain->values, value, n_bytes);
            if (state != NULL)
                append(chain->states, state + i * chain->shape.state_bytes,
                       chain->shape.state_bytes);
            if (rows->lengths != NULL)
                g_array_append_val(chain->lengths, rows->lengths[i]);
        }
        value += n_bytes;
    }
    return (RubatoSnapshotRows){
        .keys = (const RubatoKey *)(const void *)chain->keys->data,
        .n = chain->keys->len,
        .values = chain->values->data,
        .states = state != NULL ? chain->states->data : NULL,
        .lengths =
            rows->lengths != NULL ? (const uint32_t *)(const void *)chain->lengths->data : NULL,
    };
}

/* A function of the caller has failed. It must say why: else its failure could be taken for success
 * further on. fault: transfer full. */
static void say_why(GError *fault, GError **error)
{
    if (fault != NULL)
        g_propagate_error(error, fault);
    else
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                            "the function that takes its rows returned false and set no error");
}

static bool take_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    ChainRows *const chain = user_data;
    const RubatoSnapshotRows *taken = rows;
    RubatoSnapshotRows some;
    GError *fault = NULL;

    for (size_t i = 0; chain->covers->len > 0 && i < rows->n && taken == rows; i++)
        if (is_newer(chain, key_at(rows, i))) {
            some = take_out(chain, rows);
            taken = &some;
        }
    chain->n_rows += taken->n;
    if (taken->n == 0 || chain->taker->rows == NULL ||
        chain->taker->rows(taken, chain->taker->user_data, &fault))
        return true;
    say_why(fault, error);
    return false;
}

static bool take_tuned(uint32_t hyper, double value, void *user_data, GError **error)
{
    const ChainRows *const chain = user_data;
    GError *fault = NULL;

    /* Those of the newest file: it has all of them. */
    if (chain->covers->len > 0 || chain->taker->tuned == NULL ||
        chain->taker->tuned(hyper, value, chain->taker->user_data, &fault))
        return true;
    say_why(fault, error);
    return false;
}

static bool take_admission(const PartAdmission *admission, void *user_data, GError **error)
{
    const ChainRows *const chain = user_data;
    GError *fault = NULL;

    /* Likewise. */
    if (chain->covers->len > 0 || chain->taker->admission == NULL ||
        chain->taker->admission(admission, chain->taker->user_data, &fault))
        return true;
    say_why(fault, error);
    return false;
}

static void take_loss(const RoundingLoss *loss, void *user_data)
{
    const ChainRows *const chain = user_data;

    if (chain->taker->loss != NULL)
        chain->taker->loss(loss, chain->taker->user_data);
}

/* Most files of a part have the same bits, so that one set is asked for each row. cover: transfer
 * full. */
static void add_cover(ChainRows *chain, KeyCover *cover)
{
    for (guint i = 0; i < chain->covers->len; i++)
        if (key_cover_merge(&g_array_index(chain->covers, KeyCover, i), cover)) {
            key_cover_clear(cover);
            return;
        }
    g_array_append_val(chain->covers, *cover);
}

bool chain_rows_read(ChainRows *chain, const PartFile *file, bool has_cover, GError **error)
{
    const PartTaker taker = {
        .rows = take_rows,
        .tuned = take_tuned,
        .admission = take_admission,
        .loss = take_loss,
        .user_data = chain,
        .ends_at_rows = chain->taker->ends_at_rows,
    };
    KeyCover cover;

    if (!part_rows_read(file, &taker, has_cover ? &cover : NULL, error))
        return false;
    if (has_cover)
        add_cover(chain, &cover);
    return true;
}
