/* Slices of a part. What runs as the server's owner is marked so; the rest runs on the caller's
 * thread, which waits meanwhile. */
#include "engine/snapshot/part_slices.h"

#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "models/update/rule.h"

#define NO_MEMORY "there is no memory for its rows"

/* So many keys of rows of different lengths are looked at for a slice. */
#define RAGGED_KEYS ((size_t)1024)

/* So many rows are looked at in one go for those that have expired. */
#define EXPIRED_LOOKS 1024u

static bool is_ragged(const PartSlices *slices)
{
    return slices->table->spec->shape == RUBATO_SHAPE_RAGGED;
}

/* As the server's owner. */
static void find_cover(Server *server, void *data)
{
    PartSlices *const slices = data;
    const RubatoShard *const shard = server_find_shard(server, slices->table->id, slices->part);

    if (shard != NULL)
        slices->cover = shard_changes(shard, slices->whom, &slices->n_rows);
}

typedef struct {
    const PartSlices *slices;
    StorageCursor at;
    bool goes_on;
} ExpiredRows;

/* As the server's owner. */
static void cover_expired(Server *server, void *data)
{
    ExpiredRows *const expired = data;
    RubatoShard *const shard =
        server_find_shard(server, expired->slices->table->id, expired->slices->part);
    uint32_t n_looks = EXPIRED_LOOKS;

    expired->goes_on =
        shard != NULL && shard_cover_expired(shard, expired->slices->whom, &expired->at, &n_looks);
}

/* A row that expires after this has, in the base or in this snapshot, the values that it had at the
 * cut. */
static void find_changes(PartSlices *slices)
{
    ExpiredRows expired = { .slices = slices };

    servers_run(slices->server, 1, find_cover, slices);
    if (slices->cover == NULL || spec_stamp_bytes(slices->table->spec) == 0)
        return;
    do
        servers_run(slices->server, 1, cover_expired, &expired);
    while (expired.goes_on);
}

bool part_slices_init(PartSlices *slices, const Table *table, uint32_t part, Server *server,
                      SlicesOf rows, GError **error)
{
    const size_t bytes = table->row_bytes + table->state_bytes;

    *slices = (PartSlices){ .table = table, .part = part, .server = server };
    slices->image.n_lent_most = PART_LENT_BYTES / (bytes + sizeof(RubatoKey));
    slices->most = is_ragged(slices) ? RAGGED_KEYS : MAX(1, PART_ROWS_BYTES / bytes);
    slices->keys = g_try_new(RubatoKey, slices->most);
    slices->values = is_ragged(slices) ? NULL : g_try_malloc(slices->most * bytes);
    slices->whom = rows == SLICES_OF_STREAM ? CHANGES_FOR_STREAM : CHANGES_FOR_SNAPSHOTS;
    if (rows != SLICES_OF_ALL)
        find_changes(slices);
    if (slices->cover != NULL)
        slices->places = g_try_new(uint32_t, slices->most);
    if (slices->keys != NULL && (is_ragged(slices) || slices->values != NULL) &&
        (slices->cover == NULL || slices->places != NULL))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "table %s: no memory for a slice of part %u", table->spec->name, part);
    part_slices_clear(slices);
    return false;
}

void part_slices_clear(PartSlices *slices)
{
    g_clear_pointer(&slices->keys, g_free);
    g_clear_pointer(&slices->values, g_free);
    g_clear_pointer(&slices->places, g_free);
    handler_answer_clear(&slices->answer);
    image_slice_clear(&slices->image);
}

static void fail(PartSlices *slices, RubatoError code, const char *why)
{
    slices->fault = why;
    slices->fault_code = code;
}

/* ---- as the server's owner ---- */

/* The next keys: a run of the part's range, or those that its storage lists. */
static RubatoKeys find_keys(PartSlices *slices, const RubatoShard *shard)
{
    RubatoKeys keys = { .n = 0 };
    uint64_t n_rows;

    if (rubato_table_spec_holds_range(slices->table->spec)) {
        shard_range(shard, &keys.first, &n_rows);
        keys.first += slices->next;
    } else {
        n_rows = shard_n_rows(shard);
        keys.keys = slices->keys;
    }
    if (slices->next == 0)
        slices->n_listed = slices->cover != NULL ? slices->n_rows : n_rows;
    if (n_rows != slices->n_listed)
        fail(slices, RUBATO_ERROR_INVALID, "rows were created while it was read");
    else
        keys.n = (size_t)MIN(n_rows - slices->next, slices->most);
    if (keys.keys != NULL)
        shard_list(shard, slices->next, keys.n, slices->keys);
    slices->at_end = keys.n == 0;
    return keys;
}

/* Of the keys that were found, those that are to be read. */
static void choose_keys(PartSlices *slices, RubatoKeys *keys)
{
    size_t n = 0;

    for (size_t i = 0; i < keys->n; i++) {
        const RubatoKey key = keys->keys == NULL ? keys->first + i : slices->keys[i];

        if (!key_cover_has(slices->cover, key))
            continue;
        slices->keys[n] = key;
        slices->places[n++] = (uint32_t)i;
    }
    keys->keys = slices->keys;
    keys->n = n;
}

/* A shard that has no memory tells its server, which must not take it for the fault of the request
 * that comes next. */
static bool has_starved(Server *server)
{
    const bool has = server->starved;

    server->starved = false;
    return has;
}

static void read_even(PartSlices *slices, RubatoShard *shard, const RubatoKeys *keys)
{
    void *states = (unsigned char *)slices->values + keys->n * slices->table->row_bytes;

    slices->rows = (RubatoSnapshotRows){
        .keys = keys->keys, .first = keys->first, .n = keys->n, .values = slices->values
    };
    shard_get(shard, keys, slices->values);
    if (slices->table->state_bytes > 0) {
        shard_get_state(shard, keys, states);
        slices->rows.states = states;
    }
}

/* Asks for rows of different lengths, or their lengths alone. */
static bool ask_ragged(RubatoShard *shard, const char *name, const RubatoKeys *keys,
                       HandlerAnswer *answer)
{
    HandlerCall call = { .ops = ragged_find(name), .arguments = "" };

    handler_run(&call, shard, keys);
    *answer = call.answer;
    return answer->failure == NULL && answer->bytes != NULL;
}

/* As many of the keys as have about the bytes of a slice, and one at least. */
static size_t count_fitting(const PartSlices *slices, RubatoShard *shard, const RubatoKeys *keys)
{
    const size_t value_bytes = rubato_dtype_size(slices->table->spec->dtype);
    HandlerAnswer lengths;
    size_t n = 0;

    if (ask_ragged(shard, "ragged.lengths", keys, &lengths))
        for (size_t n_bytes = 0; n < keys->n && n_bytes < PART_ROWS_BYTES; n++)
            n_bytes += value_bytes * ((const uint32_t *)lengths.bytes)[n];
    handler_answer_clear(&lengths);
    return n;
}

static void read_ragged(PartSlices *slices, RubatoShard *shard, RubatoKeys keys)
{
    if (keys.keys == NULL)
        for (size_t i = 0; i < keys.n; i++)
            slices->keys[i] = keys.first + i;
    keys.keys = slices->keys;
    keys.n = count_fitting(slices, shard, &keys);
    handler_answer_clear(&slices->answer);
    if (keys.n == 0 || !ask_ragged(shard, "ragged.get", &keys, &slices->answer)) {
        fail(slices, RUBATO_ERROR_MEMORY, NO_MEMORY);
        return;
    }
    slices->rows = (RubatoSnapshotRows){
        .keys = keys.keys,
        .n = keys.n,
        .values = (const unsigned char *)slices->answer.bytes + keys.n * sizeof(uint32_t),
        .lengths = slices->answer.bytes,
    };
}

static void read_image(PartSlices *slices, RubatoShard *shard)
{
    ImageSlice *const slice = &slices->image;

    slices->has_image = true;
    slices->n_changes = shard_image_n_changes(shard);
    if (!shard_read_image(shard, slices->most, slice))
        fail(slices, RUBATO_ERROR_MEMORY, shard_image_loss(shard)); /* unless the disk refuses */
    slices->at_end = slice->at_end;
}

/* On the caller's thread. */
static void take_image(PartSlices *slices)
{
    ImageSlice *const slice = &slices->image;

    if (!image_slice_fetch(slice))
        fail(slices, RUBATO_ERROR_MEMORY,
             "copies of rows that changed meanwhile cannot be read back");
    else if (slice->state != SLICE_LENT)
        slices->rows = (RubatoSnapshotRows){
            .keys = slice->keys,
            .first = slice->first,
            .n = slice->n,
            .values = slice->values,
            .states = slices->table->state_bytes > 0 ? slice->states : NULL,
        };
}

static void read_slice(Server *server, void *data)
{
    PartSlices *slices = data;
    RubatoShard *shard = server_find_shard(server, slices->table->id, slices->part);
    size_t n_found;
    RubatoKeys keys;

    slices->rows = (RubatoSnapshotRows){ .n = 0 };
    slices->fault = NULL;
    slices->has_image = false;
    if (shard == NULL) {
        fail(slices, RUBATO_ERROR_INVALID, "it is not on its server");
        return;
    }
    if (shard_has_image(shard)) {
        read_image(slices, shard);
        return;
    }
    keys = find_keys(slices, shard);
    n_found = keys.n;
    if (slices->cover != NULL)
        choose_keys(slices, &keys);
    if (keys.n > 0 && is_ragged(slices))
        read_ragged(slices, shard, keys);
    else if (keys.n > 0)
        read_even(slices, shard, &keys);
    /* Of ragged rows perhaps not all were read. */
    if (slices->rows.n == keys.n)
        slices->next += n_found;
    else
        slices->next += slices->cover != NULL ? slices->places[slices->rows.n] : slices->rows.n;
    if (has_starved(server))
        fail(slices, RUBATO_ERROR_MEMORY, NO_MEMORY);
}

/* ---- on the caller's thread ---- */

static void set_error(const PartSlices *slices, GError **error)
{
    SpillFile *const spill = slices->image.spill; /* NULL: there is no image */
    g_autofree char *refusal = spill != NULL ? spill_file_refusal(spill) : NULL;

    g_set_error(error, RUBATO_ERROR, (gint)(refusal != NULL ? RUBATO_ERROR_IO : slices->fault_code),
                "table %s: part %u cannot be read: %s%s%s", slices->table->spec->name, slices->part,
                slices->fault, refusal != NULL ? ": " : "", refusal != NULL ? refusal : "");
}

bool part_slices_next(PartSlices *slices, GError **error)
{
    do {
        server_run_here(slices->server, read_slice, slices);
        if (slices->has_image && slices->fault == NULL)
            take_image(slices);
        if (slices->fault == NULL && (slices->rows.n > 0 || slices->at_end))
            return true;
    } while (slices->fault == NULL);
    set_error(slices, error);
    return false;
}

typedef struct {
    const PartSlices *slices;
    bool is_tuned[N_HYPERS];
    double values[N_HYPERS];
} Tunings;

static void read_tunings(Server *server, void *data)
{
    Tunings *tunings = data;
    const RubatoShard *shard =
        server_find_shard(server, tunings->slices->table->id, tunings->slices->part);

    for (uint32_t i = 0; shard != NULL && i < N_HYPERS; i++)
        tunings->is_tuned[i] = shard_has_image(shard)
                                   ? shard_image_tuned(shard, (RubatoHyper)i, &tunings->values[i])
                                   : shard_tuned(shard, (RubatoHyper)i, &tunings->values[i]);
}

bool part_slices_tuned(const PartSlices *slices, PartTunedFunc function, void *user_data,
                       GError **error)
{
    Tunings tunings = { .slices = slices };

    servers_run(slices->server, 1, read_tunings, &tunings);
    for (uint32_t i = 0; i < N_HYPERS; i++)
        if (tunings.is_tuned[i] && !function(i, tunings.values[i], user_data, error))
            return false;
    return true;
}

typedef struct {
    const PartSlices *slices;
    PartAdmission piece;
    uint64_t *words;
} AdmissionPiece;

/* As the server's owner. */
static void read_admission(Server *server, void *data)
{
    AdmissionPiece *const read = data;
    PartAdmission *const piece = &read->piece;
    const RubatoShard *const shard =
        server_find_shard(server, read->slices->table->id, read->slices->part);

    const size_t n_all = shard != NULL ? shard_n_admission_words(shard) : 0;

    piece->n_all = n_all;
    piece->n = n_all > piece->first ? MIN(n_all - piece->first, PART_ADMISSION_WORDS) : 0;
    if (piece->n > 0 && shard_has_image(shard))
        shard_image_admission(shard, piece->first, piece->n, read->words);
    else if (piece->n > 0)
        shard_get_admission(shard, piece->first, piece->n, read->words);
}

bool part_slices_admission(const PartSlices *slices, PartAdmissionFunc function, void *user_data,
                           GError **error)
{
    g_autofree uint64_t *words = g_new(uint64_t, PART_ADMISSION_WORDS);
    AdmissionPiece read = { .slices = slices, .piece = { .words = words }, .words = words };

    for (;; read.piece.first += read.piece.n) {
        servers_run(slices->server, 1, read_admission, &read);
        if (read.piece.n == 0)
            return true;
        if (!function(&read.piece, user_data, error))
            return false;
    }
}
