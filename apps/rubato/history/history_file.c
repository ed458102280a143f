/* The format of histories. Every size is checked against the bytes that are there. */
#include "apps/rubato/history/history_file.h"

#include "apps/rubato/history/history_unpack.h"

#include <string.h>

enum {
    FILE_HEADER_BYTES = 64,
    CHUNK_HEADER_BYTES = 32,
    RECORD_HEADER_BYTES = 32,
    MOST_ROW_BYTES = 64, /* a number of 8 bytes stands for a larger row */
    MOST_WIDTH = 1 << 24,
    SLOT_BYTES = 1 << 18, /* of the second file */
};

#define CHUNK_MAGIC UINT32_C(0x4b4e4843)

static uint32_t read_u32(const uint8_t *at)
{
    uint32_t number;

    memcpy(&number, at, sizeof number);
    return GUINT32_FROM_LE(number);
}

static uint64_t read_u64(const uint8_t *at)
{
    uint64_t number;

    memcpy(&number, at, sizeof number);
    return GUINT64_FROM_LE(number);
}

size_t record_row_bytes(const RecordOwner *owner)
{
    const size_t bytes = rubato_dtype_size(owner->dtype) * owner->width;

    return bytes > MOST_ROW_BYTES ? 8 : bytes;
}

static const char *take_name(Record *record, const uint8_t *body, uint64_t n_bytes)
{
    enum { HASH_BYTES = 8 };

    if (n_bytes < HASH_BYTES || n_bytes - HASH_BYTES > RECORD_NAME_BYTES)
        return "a handler has no name, or too long a one";
    record->name = (const char *)body + HASH_BYTES;
    record->n_name = strnlen(record->name, n_bytes - HASH_BYTES);
    return NULL;
}

static const char *take_applied(const RecordOwner *owner, Record *record, const uint8_t *body,
                                uint64_t n_bytes)
{
    enum { WHO_BYTES = 16 };
    const uint64_t n = record->n_keys;
    const uint64_t key_bytes = (record->flags & RECORD_RUN_OF_KEYS ? (uint64_t)(n > 0) : n) * 8;
    const uint64_t row_bytes = (2 * n * record_row_bytes(owner) + 7) / 8 * 8;

    if (n_bytes != WHO_BYTES + key_bytes + row_bytes)
        return "what a server has applied has another size";
    record->epoch = read_u32(body);
    record->rank = read_u32(body + 4);
    record->part = read_u32(body + 8);
    record->place = read_u32(body + 12);
    if (n == 0)
        return NULL;
    record->keys = (const uint64_t *)(const void *)(body + WHO_BYTES);
    record->rows = body + WHO_BYTES + key_bytes;
    return NULL;
}

static const char *take_ragged(Record *record, const uint8_t *body, uint64_t n_bytes)
{
    enum { HEADER_BYTES = 32, MOST_BYTES = 1 << 29 };

    if (n_bytes < HEADER_BYTES)
        return "a request to ragged rows has another size";
    record->op = (RaggedOp)read_u32(body);
    record->part = read_u32(body + 4);
    record->number = read_u64(body + 8);
    record->bytes_at = read_u64(body + 16);
    record->n_bytes = read_u64(body + 24);
    record->bytes = body + HEADER_BYTES;
    record->n_bytes_here = n_bytes - HEADER_BYTES;
    if (record->op < RAGGED_LENGTHS || record->op > RAGGED_ERASE)
        return "there is no such request to ragged rows";
    if (record->n_bytes > MOST_BYTES || record->bytes_at > record->n_bytes ||
        record->n_bytes_here > record->n_bytes - record->bytes_at)
        return "a request to ragged rows has more bytes than it may have";
    return NULL;
}

static const char *take_ragged_ran(Record *record, const uint8_t *body, uint64_t n_bytes)
{
    if (n_bytes != 32)
        return "what a server has run on ragged rows has another size";
    record->epoch = read_u32(body);
    record->rank = read_u32(body + 4);
    record->part = read_u32(body + 8);
    record->order = read_u64(body + 16);
    record->row_bytes = read_u64(body + 24);
    return NULL;
}

/* Finds the keys and rows of a record. NULL, or what is wrong with it. */
static const char *take_body(const RecordOwner *owner, Record *record, RecordsBefore *last,
                             const uint8_t *body, uint64_t n_bytes)
{
    const uint32_t n = record->n_keys;
    const bool run = record->flags & RECORD_RUN_OF_KEYS;
    uint64_t key_bytes = (run ? (uint64_t)(n > 0) : n) * 8;

    if (record->kind == RECORD_HANDLER)
        return take_name(record, body, n_bytes);
    if (record->kind == RECORD_APPLIED)
        return take_applied(owner, record, body, n_bytes);
    if (record->kind == RECORD_RAGGED)
        return take_ragged(record, body, n_bytes);
    if (record->kind == RECORD_RAGGED_RAN)
        return take_ragged_ran(record, body, n_bytes);
    if (n > 0 && record->flags & RECORD_SAME_KEYS) {
        if (last->keys == NULL || last->n_keys != n || last->run != run)
            return "it has the keys of a record that is not there";
        record->keys = last->keys;
        key_bytes = 0;
    } else if (n > 0) {
        if (key_bytes > n_bytes)
            return "its keys end behind it";
        record->keys = (const uint64_t *)(const void *)body;
        last->keys = record->keys;
        last->n_keys = n;
        last->run = run;
    }
    const uint64_t row_bytes = (n * record_row_bytes(owner) + 7) / 8 * 8;
    if (n_bytes - key_bytes == row_bytes && row_bytes > 0)
        record->rows = body + key_bytes;
    else if (n_bytes != key_bytes)
        return "its rows have another size";
    return NULL;
}

/* Visits the Clock that the record tells, which tells none from then on. */
static void take_clock(const HistoryVisitor *visitor, const RecordOwner *owner, Record *record)
{
    const Record clock = { .kind = RECORD_CLOCK, .clock = record->clock, .n_adds = record->n_adds };

    if (!(record->flags & RECORD_CLOCKED))
        return;
    record->flags &= ~(unsigned)RECORD_CLOCKED;
    visitor->record(visitor->user, owner, &clock);
}

/* The record at *at, and sets *at to where the next one begins. NULL, or what is wrong with it. */
static const char *take_plain(const RecordOwner *owner, RecordsBefore *before, const uint8_t **at,
                              const uint8_t *end, Record *record)
{
    const uint8_t *const begin = *at;

    if (end - begin < RECORD_HEADER_BYTES)
        return "a record ends behind its chunk";
    *record = (Record){ .kind = begin[0],
                        .flags = begin[1],
                        .n_keys = read_u32(begin + 4),
                        .clock = read_u64(begin + 8),
                        .n_adds = read_u64(begin + 16) };
    const uint64_t n_bytes = read_u64(begin + 24);
    if (n_bytes > (uint64_t)(end - begin) - RECORD_HEADER_BYTES || n_bytes % 8 != 0)
        return "a record ends behind its chunk";
    if (record->kind < RECORD_GET || record->kind > RECORD_RAGGED_RAN)
        return "there is no such kind of record";
    *at = begin + RECORD_HEADER_BYTES + n_bytes;
    return take_body(owner, record, before, begin + RECORD_HEADER_BYTES, n_bytes);
}

/* In a slot zeros follow the last record. */
static const char *take_records(HistoryFile *file, const HistoryVisitor *visitor,
                                const RecordOwner *owner, const uint8_t *at, uint64_t n,
                                bool is_slot)
{
    const uint8_t *const end = at + n;
    RecordsBefore before = { .keys = NULL };

    while (at < end && !(is_slot && at[0] == 0)) {
        Record record;
        const char *const wrong = at[0] & RECORD_PACKED
                                      ? history_unpack(file, owner, &before, &at, end, &record)
                                      : take_plain(owner, &before, &at, end, &record);

        if (wrong != NULL)
            return wrong;
        if ((record.kind == RECORD_GET || record.kind == RECORD_ADD) && record.rows == NULL &&
            record.n_keys > 0)
            return "a Get or an Add has no rows";
        take_clock(visitor, owner, &record);
        visitor->record(visitor->user, owner, &record);
    }
    return NULL;
}

static const char *take_chunk(HistoryFile *file, const HistoryVisitor *visitor, const uint8_t *at,
                              uint32_t n, bool is_slot)
{
    const RecordOwner owner = { .node = file->node,
                                .epoch = read_u32(at + 12),
                                .rank = read_u32(at + 16),
                                .table = read_u32(at + 20),
                                .dtype = (RubatoDtype)read_u32(at + 24),
                                .width = read_u32(at + 28) };

    if (read_u32(at + 8) == 1 && !is_slot) {
        g_autofree char *text = g_strndup((const char *)at + CHUNK_HEADER_BYTES, n);
        visitor->line(visitor->user, file->node, g_strchomp(text));
        return NULL;
    }
    if (rubato_dtype_size(owner.dtype) == 0 || owner.width == 0 || owner.width > MOST_WIDTH)
        return "a chunk has no rows of such a type and width";
    return take_records(file, visitor, &owner, at + CHUNK_HEADER_BYTES, n, is_slot);
}

static bool refuse(const char *path, size_t at, const char *wrong, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s: byte %zu: %s", path, at, wrong);
    return false;
}

/* ---- the file ---- */

static bool read_chunks(HistoryFile *file, const HistoryVisitor *visitor, GError **error)
{
    const char *const path = file->path;
    const uint8_t *const bytes = (const uint8_t *)g_mapped_file_get_contents(file->bytes);
    const size_t size = g_mapped_file_get_length(file->bytes);
    size_t at = FILE_HEADER_BYTES;

    while (at < size) {
        const bool whole = size - at >= CHUNK_HEADER_BYTES;
        if (whole && (read_u32(bytes + at) != CHUNK_MAGIC || read_u32(bytes + at + 4) % 8 != 0))
            return refuse(path, at, "here no chunk begins", error);
        const uint32_t n = whole ? read_u32(bytes + at + 4) : 0;
        if (!whole || n > size - at - CHUNK_HEADER_BYTES)
            return file->state == HISTORY_FILE_OPEN || file->state == HISTORY_FILE_SILENT ||
                   refuse(path, at, "the chunk is not whole", error);
        const char *const wrong = take_chunk(file, visitor, bytes + at, n, /* is_slot= */ false);
        if (wrong != NULL)
            return refuse(path, at, wrong, error);
        at += CHUNK_HEADER_BYTES + n;
    }
    return true;
}

/* ---- the second file ---- */

/* (transfer full) */
static char *path_of_slots(const HistoryFile *file)
{
    const size_t n_name = strlen(file->path) - strlen(".history");

    return g_strdup_printf("%.*s.mapped", (int)n_name, file->path);
}

/* Most nodes have none. */
static bool open_slots(HistoryFile *file, GError **error)
{
    g_autofree char *path = path_of_slots(file);
    g_autoptr(GError) found = NULL;

    file->mapped = g_mapped_file_new(path, FALSE, &found);
    if (file->mapped != NULL || g_error_matches(found, G_FILE_ERROR, G_FILE_ERROR_NOENT))
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_IO, found->message);
    return false;
}

/* A process that was killed may leave its last slot without a header. */
static const char *take_slot(HistoryFile *file, const HistoryVisitor *visitor, const uint8_t *at,
                             size_t n)
{
    if (n < SLOT_BYTES || read_u32(at) == 0)
        return NULL;
    if (read_u32(at) != CHUNK_MAGIC || read_u32(at + 4) != SLOT_BYTES - CHUNK_HEADER_BYTES)
        return "here no chunk begins";
    return take_chunk(file, visitor, at, SLOT_BYTES - CHUNK_HEADER_BYTES,
                      /* is_slot= */ true);
}

static bool read_slots(HistoryFile *file, const HistoryVisitor *visitor, GError **error)
{
    const size_t size = file->mapped == NULL ? 0 : g_mapped_file_get_length(file->mapped);
    const uint8_t *const bytes =
        size == 0 ? NULL : (const uint8_t *)g_mapped_file_get_contents(file->mapped);

    for (size_t at = 0; at < size; at += SLOT_BYTES) {
        const char *const wrong = take_slot(file, visitor, bytes + at, size - at);

        if (wrong != NULL) {
            g_autofree char *path = path_of_slots(file);
            return refuse(path, at, wrong, error);
        }
    }
    return true;
}

bool history_file_read(HistoryFile *file, const HistoryVisitor *visitor, GError **error)
{
    return read_chunks(file, visitor, error) && read_slots(file, visitor, error);
}

bool history_file_open(HistoryFile *file, GError **error)
{
    const char *const path = file->path;
    g_autoptr(GError) found = NULL;
    const uint8_t *bytes;

    file->bytes = g_mapped_file_new(path, FALSE, &found);
    if (file->bytes == NULL) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_IO, found->message);
        return false;
    }
    bytes = (const uint8_t *)g_mapped_file_get_contents(file->bytes);
    if (g_mapped_file_get_length(file->bytes) < FILE_HEADER_BYTES ||
        memcmp(bytes, "RBTHIST", 7) != 0)
        return refuse(path, 0, "this is no history", error);
    if (bytes[7] < '1' || bytes[7] > '5') /* of earlier ones all is the same, and has less */
        return refuse(path, 7, "this history has a format that this version does not read", error);
    if (read_u32(bytes + 8) > HISTORY_FILE_SILENT)
        return refuse(path, 8, "this is no history", error);
    file->state = (HistoryFileState)read_u32(bytes + 8);
    file->node = read_u32(bytes + 12);
    file->n_nodes = read_u32(bytes + 16);
    file->process = read_u32(bytes + 20);
    return open_slots(file, error);
}

void history_file_clear(HistoryFile *file)
{
    g_clear_pointer(&file->bytes, g_mapped_file_unref);
    g_clear_pointer(&file->mapped, g_mapped_file_unref);
    g_clear_pointer(&file->unpacked, g_ptr_array_unref);
    g_clear_pointer(&file->path, g_free);
    g_clear_pointer(&file->tasks, g_array_unref);
}
