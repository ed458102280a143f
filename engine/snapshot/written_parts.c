/* Files of parts, and the disk. What runs as the server's owner is marked so. */
#include "engine/snapshot/written_parts.h"

#include "models/shard/image.h"
#include "models/shard/shard.h"

typedef struct {
    PartWriter *writer;
    const Table *table;
    uint32_t part;
    Server *server;
    uint64_t n_changes; /* since the cut, as seen last */
} WrittenPart;

static void free_file(gpointer data)
{
    WrittenPart *const file = data;

    part_writer_free(file->writer);
    g_free(file);
}

void written_parts_init(WrittenParts *parts, RubatoEngine *engine, WritePace *pace)
{
    *parts = (WrittenParts){ .engine = engine, .pace = pace };
    g_queue_init(&parts->files);
}

void written_parts_clear(WrittenParts *parts)
{
    g_queue_clear_full(&parts->files, free_file);
}

/* As the server's owner. */
static void find_changes(Server *server, void *data)
{
    WrittenPart *const file = data;
    const RubatoShard *const shard = server_find_shard(server, file->table->id, file->part);

    if (shard != NULL && shard_has_image(shard))
        file->n_changes = shard_image_n_changes(shard);
}

/* The disk is shared: with training data, and with whoever else writes. So it takes a file piece by
 * piece while training goes on. */
static bool settle(WrittenParts *parts, WrittenPart *file, GError **error)
{
    bool has_more = true;

    write_pace_begin_file(parts->pace);
    while (has_more && !engine_cut_is_torn(parts->engine)) {
        server_run_here(file->server, find_changes, file);
        if (!write_pace_follow_piece(parts->pace, file->n_changes))
            return true;
        if (!part_writer_settle(file->writer, &has_more, error))
            return false;
    }
    return true;
}

/* The oldest one is done. */
static bool sync_first(WrittenParts *parts, GError **error)
{
    WrittenPart *const file = g_queue_peek_head(&parts->files);

    if (!part_writer_sync(file->writer, error))
        return false;
    free_file(g_queue_pop_head(&parts->files));
    return true;
}

bool written_parts_add(WrittenParts *parts, PartWriter *writer, const Table *table, uint32_t part,
                       Server *server, GError **error)
{
    const guint n_most = part_writer_keeps_much(writer) ? 0 : WRITTEN_PARTS_MOST;
    WrittenPart *const file = g_new0(WrittenPart, 1);

    *file = (WrittenPart){ .writer = writer, .table = table, .part = part, .server = server };
    g_queue_push_tail(&parts->files, file);
    if (!part_writer_end(writer, error))
        return false;
    while (parts->files.length > n_most)
        if (!sync_first(parts, error))
            return false;
    return true;
}

bool written_parts_sync(WrittenParts *parts, GError **error)
{
    while (parts->files.length > 0)
        if (!settle(parts, g_queue_peek_head(&parts->files), error) || !sync_first(parts, error))
            return false;
    return true;
}
