/* Parts that move from one server of this process to another, also while workers use them.
 *
 * DESIGN NOTE
 *
 * A move hands over pointers: the part's shard and, for each task that uses the table, its model
 * with clocks, parked Gets, kept Adds and announcements. Nothing is copied and no Get is sent
 * again; any server may answer the call of a parked Get. The difficult point is the order.
 *
 * Both servers stand still. The move begins as the owner of `from`. This owner waits until a
 * function has run as the owner of `to`. That function owns both servers, and no other thread
 * handles a message of either. It (1) writes the map, (2) handles all messages in the mailbox of
 * `from`, which still has the part, until the mailbox is empty, (3) hands the part over.
 *
 * No Add is lost or overtaken. A sender loads the map's number, looks up the server, posts, and
 * loads the number again. The number, mailbox_push and the check that finds the mailbox empty are
 * sequentially consistent. So there are two cases for a message posted by the old map. Either it is
 * handled in (2): before the part leaves, and before any message that goes to `to` by the new map,
 * because `to` stands still. Or its sender sees another number afterwards, and the message may be
 * late. `from` no longer has the part, so it posts a late message to the server to which the part
 * went. The sender, before it does anything else, sends a fence for the part by the same way and
 * waits for it. Each server passes messages on in the order in which they come, to the server to
 * which the part went when it last left. So the fence comes behind the late message, however often
 * the part has moved. The chain ends, because each step leads to a server that had the part later.
 * When the sender sends its next message, the late one has been handled.
 *
 * No clock is early. A thread that tells a clock has seen that all of the node's workers have
 * passed it; so their Adds are posted, and the late ones fenced. A clock in the mailbox of `from`
 * in (2) may count Adds that went to `to` by the new map and are not handled yet. So the part does
 * not get this clock there; a copy is posted to `to`, behind those Adds. The clock that a Get of
 * this process brings needs no copy: its sender read the clock before it looked up the server. So a
 * clock that counts an Add by the new map comes with the new map.
 *
 * No clock is lost. A clock goes to all servers. It could miss the part if it reaches `to` before
 * the part comes and `from` after the part has left. Then its sender sees another number of the map
 * afterwards, and sends the clock again. Models ignore clocks that they know.
 *
 * A move ends. The owners of `from` and `to` handle messages without blocking. There is one move at
 * a time, so no two moves wait for one another.
 *
 * Threads: servers_move_part from any thread that is not a server's owner; the rest as a server's
 * owner. */
#include "engine/server/server_private.h"

typedef struct {
    Server *from, *to;
    uint32_t table, part;
    PartMap *map;
} Move;

/* ---- messages for a part that has left ---- */

/* A message on its sender's stack is copied. */
static void pass_to(Server *server, Server *to, Message *message)
{
    Message *const passed = message->end == NULL ? message_copy_request(message) : message;

    if (passed != NULL) {
        actor_post(&to->actor, passed);
        return;
    }
    const Binding *binding = server_find_binding(server, message->epoch, message->table);
    if (binding != NULL)
        server_starve(server, binding);
    server_answer(server, message, CALL_NO_MEMORY);
}

bool server_pass_on(Server *server, Message *message)
{
    const ServerTable *table = server_find_table(server, message->table);

    if (table == NULL || message->part >= table->n_parts ||
        table->parts[message->part].went_to == NULL)
        return false;
    pass_to(server, table->parts[message->part].went_to, message);
    return true;
}

void server_pass_on_clock(const Server *server, const Message *message)
{
    actor_post(&server->leaving_to->actor, message_copy_clock(message));
}

/* ---- moving ---- */

static void take_out(Binding *binding, uint32_t part)
{
    uint32_t n_left = 0;

    for (uint32_t i = 0; i < binding->n_here; i++)
        if (binding->here[i] != part)
            binding->here[n_left++] = binding->here[i];
    binding->n_here = n_left;
    binding->parts[part] = (BoundPart){ 0 };
}

static void put_in(Binding *binding, uint32_t part, const BoundPart *bound)
{
    uint32_t i = binding->n_here++;

    for (; i > 0 && binding->here[i - 1] > part; i--)
        binding->here[i] = binding->here[i - 1];
    binding->here[i] = part;
    binding->parts[part] = *bound;
}

/* If `to` has already ended the task, it also ends here. */
static void move_model(const Move *move, Binding *left)
{
    const BoundPart bound = left->parts[move->part];
    Binding *const entered = server_find_binding(move->to, left->epoch, left->table);

    take_out(left, move->part);
    if (entered == NULL) {
        server_end_model(move->from, bound.model);
        return;
    }
    model_set_outbox(bound.model, &move->to->actor.outbox);
    put_in(entered, move->part, &bound);
}

static void hand_over(const Move *move)
{
    ServerTable *const left = server_find_table(move->from, move->table);
    ServerTable *const entered = server_find_table(move->to, move->table);

    for (guint i = 0; i < move->from->bindings->len; i++) {
        Binding *binding = &g_array_index(move->from->bindings, Binding, i);

        if (binding->table == move->table && binding->parts[move->part].model != NULL)
            move_model(move, binding);
    }
    server_add_shard(move->to, move->table, move->part, left->parts[move->part].shard);
    entered->parts[move->part].went_to = NULL;
    left->parts[move->part].shard = NULL;
    left->parts[move->part].went_to = move->to;
}

/* As the owner of both. */
static void move_between(Server *to, void *data)
{
    const Move *move = data;
    Server *const from = move->from;

    part_map_move(move->map, move->part, to->number);
    from->leaving_to = to;
    from->leaving_table = move->table;
    from->leaving_part = move->part;
    actor_drain(&from->actor);
    from->leaving_to = NULL;
    hand_over(move);
}

/* As the owner of `from`. */
static void stop_both(Server *from, void *data)
{
    const Move *move = data;

    (void)from;
    servers_run(move->to, 1, move_between, data);
}

void servers_move_part(Server *from, Server *to, uint32_t table, uint32_t part, PartMap *map)
{
    Move move = { .from = from, .to = to, .table = table, .part = part, .map = map };

    if (from != to)
        servers_run(from, 1, stop_both, &move);
}
