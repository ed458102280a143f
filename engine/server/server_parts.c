/* Parts that go from one server to another of this process, also while workers use them.
 *
 * DESIGN NOTE
 *
 * A move hands over pointers: the part's shard and, for each task that uses the table, its model
 * with clocks, parked Gets, kept Adds and announcements. Nothing is copied and no Get is asked
 * again; the call of a parked Get does not care which server answers. What has to be argued is
 * order.
 *
 * Both servers stand still. The move runs as the owner of `from`, whose owner waits until a
 * function has run as the owner of `to`: that function has both, and nobody else handles a message
 * of either. It (1) writes the map, (2) handles all that has come to `from`, the part being there
 * still, until its mailbox is empty, (3) hands the part over.
 *
 * No Add is lost or overtaken. A sender loads the map's number, looks up the server, posts, and
 * loads the number again. Number, mailbox_push and the look that finds the mailbox empty are
 * sequentially consistent. So a message that was posted by the old map either is handled in (2),
 * before the part leaves and before anything that goes to `to` by the new map, for `to` stands
 * still; or its sender sees another number afterwards. That one may be late. `from`, which no
 * longer has the part, posts a late message to the server that the part went to, and the sender,
 * before it does anything else, sends a fence for the part the same way and waits for it. Each
 * server passes on in the order in which things come, to the server to which the part went when it
 * left last, so the fence comes behind the late message, however often the part has moved; and that
 * chain ends, for each step leads to a server that had the part later. What the sender sends next
 * finds the late message taken in.
 *
 * No clock is early. Whoever tells a clock has seen all of the node's workers behind it, hence
 * their Adds are posted, and the late ones fenced. A clock in the mailbox of `from` in (2) may
 * count Adds that went to `to` by the new map and are not handled yet: the part does not get it
 * there. A copy is posted to `to`, behind those Adds. The clock that a Get of this process brings
 * is no such one: its sender read the clock before it looked up the server, so a clock that counts
 * an Add by the new map comes with the new map.
 *
 * No clock is lost. A clock goes to all servers; told to `to` before the part has come there, and
 * to `from` after it has left, it would be. Its teller sees another number of the map afterwards,
 * and tells it again. Models ignore what they know.
 *
 * It ends. Owners of `from` and `to` wait for nobody: handling a message does not block. There is
 * one move at a time, so that no two wait for one another.
 *
 * Threads: servers_move_part any that is no server's owner; the rest as a server's owner. */
#include "engine/server/server_private.h"

typedef struct {
    Server *from, *to;
    uint32_t table, part;
    PartMap *map;
} Move;

/* ---- what is sent after a part ---- */

/* A message that belongs to its sender's stack is copied. */
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

/* A task that `to` has ended already ends here, too. */
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
