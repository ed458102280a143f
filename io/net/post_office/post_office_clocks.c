/* Clocks between nodes.
 *
 * Two nodes tell each other their clocks. If each of N nodes told each other one, that would be
 * N (N - 1) messages an iteration. So with more than two, a node reports its clock to one of them,
 * the root, which is the scheduler's node. When the lowest clock of all nodes goes up, the root
 * spreads it as the common clock: 2 (N - 1) messages an iteration. In addition a Get brings its
 * node's clock to the part that it asks, which costs no message. Which clocks go which way is
 * decided in tables/client/client_clock.c.
 *
 * DESIGN NOTE: a common clock counts no Add before it has come
 *
 * A server counts a clock only once every Add that was made before it has come. A link keeps the
 * order of its messages, so this is so for a clock that comes straight from its node. A common
 * clock comes by way of the root, and could overtake Adds on the straight way. So:
 *
 *   1. With its clock, a node A tells the root the positions up to which it has pushed requests to
 *      each other node D (network_pushed), if they have changed since its last report. The workers
 *      have pushed all that the clock counts before they stored their clocks, and the thread that
 *      reports has read these. Requests of high priority have no place among the positions; so if A
 *      has ever sent one to D, it first pushes a clock to D, which follows all requests before it
 *      and is counted in the position.
 *   2. Reports of A come to the root in the order of their positions, because both happen under
 *      clock_lock. The root notes the positions before it looks at the clock. So when the common
 *      clock is c, the root has from each A a position for D behind all that A's workers sent to D
 *      at clocks below c.
 *   3. With a common clock, or with an earlier one of any table, the root sends D all of these
 *      positions, also in order under clock_lock. Its own requests to D are on the same link.
 *   4. D keeps the clock until network_handed has reached all positions that it knew when the clock
 *      came. Then each of these requests is done, or is in a mailbox, where the clock comes behind
 *      it.
 *
 * So the Adds of clocks below c have come before c, as with clocks that come straight from their
 * nodes, and all bounds of the models are the same. A common clock is a lower bound of each node's
 * clock; models that ask for nodes' clocks need no more, because they answer by the min clock.
 *
 * Why a kept clock's wait ends. A position counts requests that were pushed, or that another thread
 * is about to push. Links lose nothing, and no request waits at its sender for a clock. So all come
 * as long as both nodes live. A lost node is waited for no longer (network_handed). Its loss ends
 * the run, and with it all waits; tables with replicas, which may outlive a node, are told all
 * clocks straight. If the root is lost, no common clock comes any more; but the root is the
 * scheduler's node, without which every run ends (docs/liveness.md). A node that lies about its
 * positions can delay others as a node can that does not clock.
 *
 * What is bounded. A node keeps two common clocks of a table at most: the first, whose positions
 * stay as they are, so that it is passed on, and the newest. The root leaves out a node to which
 * much is under way. It tells it with the next clock, or with a heartbeat. The last common clock,
 * for which the end of the task waits, is told to all at once.
 *
 * Threads: as told at each function. */
#include "io/net/post_office/post_office_private.h"

#include <string.h>

/* The root sends no common clock to a node to which so many windows are under way. */
#define MOST_WINDOWS 16

/* What the root knows of requests between other nodes, and has not told their receivers. All by
 * receiver, and then by sender. */
typedef struct RootPositions {
    uint64_t *pushed;
    bool *is_due;  /* the receiver is to be told */
    uint32_t *due; /* the senders for which this is so */
    uint32_t *n_due;
} RootPositions;

/* A common clock for which not all has come. */
typedef struct {
    uint32_t epoch;
    uint32_t node; /* that sent it: the root */
    WireClock clock;
    uint64_t required[]; /* by node */
} EarlyClock;

void post_office_init_clocks(PostOffice *office)
{
    const uint32_t n = office->n_nodes;

    pthread_mutex_init(&office->listener_lock, NULL);
    pthread_mutex_init(&office->clock_lock, NULL);
    office->required = g_new0(uint64_t, n);
    office->reported = g_new0(uint64_t, n);
    office->positions = g_new0(WirePosition, n);
    office->early = g_ptr_array_new_with_free_func(g_free);
    office->has_sent_high = g_new0(_Atomic bool, n);
    for (uint32_t node = 0; node < n; node++)
        atomic_init(&office->has_sent_high[node], false);
}

void post_office_clear_clocks(PostOffice *office)
{
    if (office->known != NULL) {
        g_free(office->known->pushed);
        g_free(office->known->is_due);
        g_free(office->known->due);
        g_free(office->known->n_due);
    }
    g_clear_pointer(&office->known, g_free);
    g_clear_pointer(&office->early, g_ptr_array_unref);
    g_clear_pointer(&office->has_sent_high, g_free);
    g_clear_pointer(&office->positions, g_free);
    g_clear_pointer(&office->reported, g_free);
    g_clear_pointer(&office->required, g_free);
    pthread_mutex_destroy(&office->clock_lock);
    pthread_mutex_destroy(&office->listener_lock);
}

/* ---- telling ---- */

static void push_clock(PostOffice *office, uint32_t node, uint32_t epoch, const WireClock *clock,
                       const WirePosition *positions, uint32_t n)
{
    const WireHeader header = {
        .kind = MESSAGE_CLOCK, .epoch = epoch, .value_bytes = n * sizeof *positions, .clock = *clock
    };
    Frame *const frame = post_office_need_frame(frame_new(&header));

    if (n > 0)
        memcpy(frame_values(frame), positions, n * sizeof *positions);
    network_push(office->network, node, frame);
}

/* Tells the root a clock, and what was pushed before it. straight: whether all others are told,
 * too. */
static void report(PostOffice *office, uint32_t epoch, const WireClock *clock, bool straight)
{
    uint32_t n = 0;

    pthread_mutex_lock(&office->clock_lock);
    for (uint32_t node = 0; node < office->n_nodes; node++) {
        if (node == office->self || node == office->root)
            continue;
        if (straight || atomic_load_explicit(&office->has_sent_high[node], memory_order_relaxed))
            push_clock(office, node, epoch, clock, NULL, 0);
        const uint64_t pushed = network_pushed(office->network, node);

        if (pushed == office->reported[node])
            continue;
        office->reported[node] = pushed;
        office->positions[n++] = (WirePosition){ .node = node, .pushed = pushed };
    }
    push_clock(office, office->root, epoch, clock, office->positions, n);
    pthread_mutex_unlock(&office->clock_lock);
}

void post_office_tell_clock(PostOffice *office, uint32_t epoch, const WireClock *clock)
{
    if (office->self != office->root) {
        report(office, epoch, clock, /* straight= */ true);
        return;
    }
    for (uint32_t node = 0; node < office->n_nodes; node++)
        if (node != office->self)
            push_clock(office, node, epoch, clock, NULL, 0);
}

void post_office_report_clock(PostOffice *office, uint32_t epoch, const WireClock *clock)
{
    report(office, epoch, clock, /* straight= */ false);
}

/* Takes what a node is to be told of the others. Returns how many positions these are. */
static uint32_t take_due(PostOffice *office, uint32_t node)
{
    RootPositions *const known = office->known;
    const size_t row = (size_t)node * office->n_nodes;
    uint32_t n = 0;

    if (known == NULL)
        return 0;
    for (; n < known->n_due[node]; n++) {
        const uint32_t sender = known->due[row + n];

        known->is_due[row + sender] = false;
        office->positions[n] =
            (WirePosition){ .node = sender, .pushed = known->pushed[row + sender] };
    }
    known->n_due[node] = 0;
    return n;
}

bool post_office_spread_clock(PostOffice *office, uint32_t epoch, const WireClock *clock)
{
    const bool is_last = clock->clock == RUBATO_CLOCK_RETIRED;
    WireClock common = *clock;
    bool all = true;

    common.source = MESSAGE_CLOCK_OF_ALL;
    pthread_mutex_lock(&office->clock_lock);
    for (uint32_t node = 0; node < office->n_nodes; node++) {
        if (node == office->self)
            continue;
        if (!is_last && network_is_full(office->network, node, MOST_WINDOWS)) {
            all = false;
            continue;
        }
        const uint32_t n = take_due(office, node);

        push_clock(office, node, epoch, &common, office->positions, n);
    }
    pthread_mutex_unlock(&office->clock_lock);
    return all;
}

/* ---- listening ---- */

void post_office_listen(PostOffice *office, ClockListener *listener)
{
    pthread_mutex_lock(&office->listener_lock);
    listener->next = office->listeners;
    office->listeners = listener;
    pthread_mutex_unlock(&office->listener_lock);
}

void post_office_unlisten(PostOffice *office, ClockListener *listener)
{
    ClockListener **link = &office->listeners;

    pthread_mutex_lock(&office->listener_lock);
    while (*link != NULL && *link != listener)
        link = &(*link)->next;
    if (*link != NULL)
        *link = listener->next;
    pthread_mutex_unlock(&office->listener_lock);
}

/* ---- receiving, all of it on the receiving thread ---- */

static void let_hear(PostOffice *office, uint32_t node, uint32_t epoch, const WireClock *clock)
{
    pthread_mutex_lock(&office->listener_lock);
    for (ClockListener *one = office->listeners; one != NULL; one = one->next)
        if (one->epoch == epoch && one->table == clock->table)
            one->hear(one, node, clock);
    pthread_mutex_unlock(&office->listener_lock);
}

/* Everything that the clock counts has come. */
static void deliver(PostOffice *office, uint32_t node, uint32_t epoch, const WireClock *clock)
{
    const Message message = {
        .kind = MESSAGE_CLOCK,
        .epoch = epoch,
        .table = clock->table,
        .node = node,
        .clock = { .source = clock->source, .map = clock->map, .clock = clock->clock }
    };

    let_hear(office, node, epoch, clock);
    for (uint32_t server = 0; server < office->n_servers; server++)
        if (office->servers[server].actor != NULL) {
            Message told = message;

            told.server = server;
            if (!post_office_handle_if_short(office, office->servers[server].actor, &told, 0))
                actor_post(office->servers[server].actor, message_copy_clock(&told));
        }
}

static RootPositions *root_positions_new(size_t n)
{
    RootPositions *const known = g_new0(RootPositions, 1);

    known->pushed = g_new0(uint64_t, n * n);
    known->is_due = g_new0(bool, n *n);
    known->due = g_new0(uint32_t, n * n);
    known->n_due = g_new0(uint32_t, n);
    return known;
}

static WirePosition position_at(const Incoming *incoming, size_t i)
{
    WirePosition position;

    memcpy(&position, (const char *)incoming->values + i * sizeof position, sizeof position);
    return position;
}

/* The root notes how far a node's requests to others go. */
static void note_positions(PostOffice *office, const Incoming *incoming, size_t n)
{
    pthread_mutex_lock(&office->clock_lock);
    if (n > 0 && office->known == NULL)
        office->known = root_positions_new(office->n_nodes);
    for (size_t i = 0; i < n; i++) {
        const WirePosition position = position_at(incoming, i);
        const size_t row = (size_t)position.node * office->n_nodes;
        RootPositions *const known = office->known;

        known->pushed[row + incoming->node] = position.pushed;
        if (!known->is_due[row + incoming->node])
            known->due[row + known->n_due[position.node]++] = incoming->node;
        known->is_due[row + incoming->node] = true;
    }
    pthread_mutex_unlock(&office->clock_lock);
}

static bool has_all_come(const PostOffice *office, const uint64_t *required)
{
    for (uint32_t node = 0; node < office->n_nodes; node++)
        if (required[node] > 0 && network_handed(office->network, node) < required[node])
            return false;
    return true;
}

/* Keeps a common clock until all has come. */
static void keep(PostOffice *office, const Incoming *incoming)
{
    const uint32_t epoch = incoming->header.epoch, table = incoming->header.clock.table;
    const size_t required_bytes = office->n_nodes * sizeof *office->required;
    EarlyClock *early = NULL;
    unsigned n = 0;

    for (guint i = 0; i < office->early->len; i++) {
        EarlyClock *const one = g_ptr_array_index(office->early, i);

        if (one->epoch == epoch && one->clock.table == table && ++n == 2)
            early = one;
    }
    if (early == NULL) {
        early = g_malloc(sizeof *early + required_bytes);
        g_ptr_array_add(office->early, early);
    }
    early->epoch = epoch;
    early->node = incoming->node;
    early->clock = incoming->header.clock;
    memcpy(early->required, office->required, required_bytes);
}

void post_office_try_clocks(PostOffice *office)
{
    for (guint i = 0; i < office->early->len;) {
        EarlyClock *const early = g_ptr_array_index(office->early, i);

        if (!has_all_come(office, early->required)) {
            i++;
            continue;
        }
        deliver(office, early->node, early->epoch, &early->clock);
        g_ptr_array_remove_index(office->early, i);
    }
}

/* What is wrong with a clock of another node; NULL if nothing is. */
static const char *find_fault(const PostOffice *office, const Incoming *incoming, size_t n)
{
    const bool is_common = incoming->header.clock.source == MESSAGE_CLOCK_OF_ALL;

    if (is_common && incoming->node != office->root)
        return "a common clock, although it is not the node that collects clocks";
    if (n > 0 && !is_common && office->self != office->root)
        return "positions of requests to a node that does not collect clocks";
    for (size_t i = 0; i < n; i++) {
        const uint64_t node = position_at(incoming, i).node;

        if (node >= office->n_nodes || node == office->self || node == incoming->node)
            return "a clock with a position of no other node";
    }
    return NULL;
}

const char *post_office_receive_clock(PostOffice *office, const Incoming *incoming)
{
    const WireClock *const clock = &incoming->header.clock;
    const size_t n = incoming->value_bytes / sizeof(WirePosition);
    const char *const fault = find_fault(office, incoming, n);

    if (fault != NULL)
        return fault;
    if (clock->source != MESSAGE_CLOCK_OF_ALL) {
        note_positions(office, incoming, n);
        deliver(office, incoming->node, incoming->header.epoch, clock);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const WirePosition position = position_at(incoming, i);

        office->required[position.node] = MAX(office->required[position.node], position.pushed);
    }
    if (has_all_come(office, office->required))
        deliver(office, incoming->node, incoming->header.epoch, clock);
    else
        keep(office, incoming);
    return NULL;
}
