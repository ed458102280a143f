/* A change of a table with replicas.
 *
 * To another node. If its server is lost, the change has to be sent again (docs/replication.md). So
 * a copy of one for whose answer its worker does not wait, an Add, a tuning or an announcement,
 * waits on the heap for the answer, which is its acknowledgement. What a server thinks of it, that
 * says to the task: so the answer itself says nothing more.
 *
 * To a server of this node, which passes what it gets on to the replicas at once, and never waits.
 * So a change of more than a window comes to it in pieces, and between two of them the worker waits
 * while many windows are under way to the node of a replica, as between the pieces that go to
 * another node. Without that, one call of any size would lie in the queue to a replica that stands
 * still.
 *
 * Why that wait ends, and no cycle of waits can form. Room comes when the replica's server has
 * handled inputs, and no server waits for anything. So it comes as long as the replica's node
 * lives, also if that node's workers wait for this node in the same way, or its part has a replica
 * in its turn. Nothing that a server, a step after a loss, the scheduler or a heartbeat needs comes
 * from a worker that waits here, but that it sends no more before CLOSE, which waits for it as for
 * one whose pieces go to another node. If the replica's node is lost, there is room at once.
 *
 * Threads: the client's worker; the copy's end any. */
#include "tables/client/client_private.h"

typedef struct {
    Call call; /* first: its end finds the rest */
    Message *message;
} KeptChange;

static void end_change(Call *call)
{
    KeptChange *const change = (KeptChange *)call;

    g_free(change->message);
    g_free(change);
}

static bool tell_and_keep(const TableClient *client, const Message *message)
{
    KeptChange *const change = g_new(KeptChange, 1);

    change->message = message_copy_request(message);
    if (change->message == NULL) {
        g_free(change);
        return false;
    }
    call_begin(&change->call, end_change);
    call_add_parts(&change->call, 1);
    change->message->call = &change->call;
    const bool is_sent =
        post_office_tell(client->route->office, change->message) != POST_OFFICE_UNSENT;

    call_sent(&change->call);
    return is_sent;
}

/* ---- to a server of this node ---- */

static size_t bytes_of_key(const Message *message)
{
    return (message->request.keys.keys != NULL ? sizeof(RubatoKey) : 0) +
           (message->request.input != NULL ? message->row_bytes : 0);
}

/* How many pieces a change has that goes to a server of this node. *n: the keys of each but the
 * last. */
static uint32_t count_pieces(const PostOffice *office, const Message *message, size_t *n)
{
    const size_t n_keys = message->request.keys.n, key_bytes = bytes_of_key(message);

    *n = key_bytes == 0 ? SIZE_MAX : MAX(1, office->sizes.window_bytes / key_bytes);
    return n_keys <= *n ? 1 : (uint32_t)((n_keys - 1) / *n) + 1;
}

static void wait_for_replicas(const TableClient *client, uint32_t part)
{
    const PartMap *const map = client->route->map;
    PostOffice *const office = client->route->office;

    for (uint32_t i = 0; i < map->n_replicas; i++) {
        const uint32_t node = office->servers[part_map_replica(map, part, i)].node;

        if (node != office->self)
            post_office_pace(office, node);
    }
}

/* Returns what post_office_tell has copied. */
static size_t tell_pieces(const TableClient *client, const Message *message, size_t n_of_piece)
{
    const RubatoKeys *const all = &message->request.keys;
    size_t n_copied = 0;

    for (size_t begin = 0; begin < all->n; begin += n_of_piece) {
        const size_t n = MIN(n_of_piece, all->n - begin);
        Message piece = *message;

        piece.request.keys = message_keys_from(all, begin, n);
        if (message->kind == MESSAGE_ANNOUNCE)
            piece.request.n_announced = all->n;
        else if (all->at == NULL) /* a selection's positions count from the start of all rows */
            piece.request.input = (const char *)message->request.input + begin * message->row_bytes;
        if (begin > 0)
            wait_for_replicas(client, message->part);
        n_copied += post_office_tell(client->route->office, &piece); /* here it is never unsent */
    }
    return n_copied;
}

bool table_client_tell_replicated(TableClient *client, Message *message)
{
    size_t n;

    if (!post_office_is_local(client->route->office, message->server))
        return tell_and_keep(client, message);
    if (count_pieces(client->route->office, message, &n) == 1)
        return table_client_tell(client, message);
    client->unheard_bytes += tell_pieces(client, message, n);
    return true;
}

/* Add-and-Get: each place of a key that is there twice shows all deltas, also those of a later
 * piece. So the Get comes behind all of them. */
void table_client_ask_replicated(const TableClient *client, Message *message)
{
    PostOffice *const office = client->route->office;
    size_t n;
    const uint32_t n_pieces = count_pieces(office, message, &n);
    Message change = *message;

    if (n_pieces == 1) {
        post_office_ask(office, message);
        return;
    }
    change.request.output = NULL;
    if (message->kind != MESSAGE_ADD_GET) {
        call_add_parts(message->call, n_pieces - 1);
        (void)tell_pieces(client, &change, n);
        return;
    }
    change.kind = MESSAGE_ADD;
    call_add_parts(message->call, n_pieces);
    (void)tell_pieces(client, &change, n);
    message->kind = MESSAGE_GET;
    message->request.input = NULL;
    post_office_ask(office, message);
}
