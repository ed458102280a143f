/* The state machines of a part with replicas: seeded runs of whole clusters under the protocol of
 * docs/replication.md. Nodes are lost at any time and go on without knowing it.
 * tests/spin/replication.pml tries all orders of a small cluster; this tries the library's own code
 * in larger ones. */
#include "engine/server/replicas/replica_feed.h"

#include <glib.h>
#include <string.h>

#include "tests/support/runner.h"

#define MOST_NODES 6
#define N_ADDS 20
#define N_GETS 6
#define NO_NODE UINT32_MAX

/* An input of the part. */
typedef struct {
    uint32_t worker;
    uint64_t sequence; /* 0: the clock of its worker, at the end of its work */
    uint64_t delta;
} Input;

typedef enum {
    KIND_ADD,
    KIND_GET,
    KIND_ACK,
    KIND_ROWS,
    KIND_FEED,
    KIND_POSITION,
    KIND_CLOCK,
    KIND_CLOSE,
    KIND_PROMOTE,
    KIND_OPEN,
} Kind;

typedef struct {
    Kind kind;
    uint32_t number;
    uint32_t primary; /* CLOSE: the nodes that are lost, a bit each */
    uint64_t n;
    Input input;
    uint64_t counts[MOST_NODES];
} Letter;

/* What a worker has sent and what is not acknowledged, oldest first. */
typedef struct KeptInput KeptInput;
struct KeptInput {
    KeptInput *next;
    uint64_t sequence;
};

typedef struct {
    uint64_t n_sent;
    KeptInput *first, *last;
} KeptInputs;

typedef struct {
    KeptInput base; /* first */
    Input input;
} Kept;

typedef struct {
    HeldAnswer base; /* first */
    uint32_t to;
    Letter letter;
} Held;

typedef struct {
    uint32_t number, primary, deaf;
    bool closed;

    /* a holder */
    bool is_holder, serves;
    GArray *log; /* of Input: what it has had; its length is its position */
    InputSequences *had;
    uint64_t sums[MOST_NODES];
    bool clocked[MOST_NODES];
    ReplicaFeed feed;

    /* its worker */
    KeptInputs kept;
    uint64_t acked, sum;
    unsigned n_gets;
    bool waits, told_clock;
    uint64_t needed[MOST_NODES]; /* what was acknowledged when the Get began, by worker */
} Node;

typedef struct {
    GRand *random;
    uint64_t seed;
    uint32_t n_nodes, n_replicas, n_losses;
    Node nodes[MOST_NODES];
    GQueue links[MOST_NODES][MOST_NODES];
    GQueue orders[MOST_NODES];

    /* the scheduler */
    uint32_t number, primary, lost, closed;
    bool is_over;
    uint64_t positions[MOST_NODES];

    uint64_t shown[MOST_NODES];
} Cluster;

#define require(cluster, condition) \
    require_msg(condition, "seed %" G_GUINT64_FORMAT ": %s", (cluster)->seed, #condition)

static uint32_t draw(Cluster *cluster, uint32_t n)
{
    return (uint32_t)g_rand_int_range(cluster->random, 0, (gint32)n);
}

static bool is_in(uint32_t bits, uint32_t node)
{
    return (bits >> node & 1) != 0;
}

static void post(Cluster *cluster, uint32_t from, uint32_t to, const Letter *letter)
{
    g_queue_push_tail(&cluster->links[from][to], g_memdup2(letter, sizeof *letter));
}

static void order(Cluster *cluster, uint32_t to, const Letter *letter)
{
    g_queue_push_tail(&cluster->orders[to], g_memdup2(letter, sizeof *letter));
}

/* The acknowledgement of an Add, or the answer of a Get, of a worker. */
static void let_go(Cluster *cluster, uint32_t self, HeldAnswer *first)
{
    for (HeldAnswer *answer = first, *next; answer != NULL; answer = next) {
        Held *held = (Held *)answer;

        next = answer->next;
        post(cluster, self, held->to, &held->letter);
        g_free(held);
    }
}

static void answer(Cluster *cluster, uint32_t self, uint32_t to, const Letter *letter)
{
    Held *held = g_new0(Held, 1);

    held->to = to;
    held->letter = *letter;
    if (!replica_feed_hold(&cluster->nodes[self].feed, &held->base))
        let_go(cluster, self, &held->base);
}

static void apply(Node *node, const Input *input)
{
    if (input->sequence == 0)
        node->clocked[input->worker] = true;
    else
        node->sums[input->worker] = node->sums[input->worker] * 31 + input->delta;
    g_array_append_val(node->log, *input);
}

static void apply_and_feed(Cluster *cluster, uint32_t self, const Input *input)
{
    Node *node = &cluster->nodes[self];
    const uint64_t number = replica_feed_count(&node->feed);

    apply(node, input);
    for (uint32_t i = 0; i < node->feed.n_replicas; i++)
        post(cluster, self, node->feed.replicas[i].server,
             &(Letter){ .kind = KIND_FEED, .n = number, .input = *input });
}

static void take_add(Cluster *cluster, uint32_t self, uint32_t from, const Input *input)
{
    Node *node = &cluster->nodes[self];

    require(cluster, input->sequence <=
                         node->had->senders[from].sequence + 1); /* none before it is missing */
    if (input_sequences_take(node->had, from, input->sequence))
        apply_and_feed(cluster, self, input);
    answer(cluster, self, from, &(Letter){ .kind = KIND_ACK, .n = input->sequence });
}

static void take_get(Cluster *cluster, uint32_t self, uint32_t from)
{
    const Node *node = &cluster->nodes[self];
    Letter rows = { .kind = KIND_ROWS };

    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        rows.counts[i] = node->had->senders[i].sequence;
    answer(cluster, self, from, &rows);
}

static void take_clock(Cluster *cluster, uint32_t self, uint32_t from, uint32_t number)
{
    Node *node = &cluster->nodes[self];

    if (!node->serves || number != node->number || node->clocked[from])
        return;
    require(cluster, node->had->senders[from].sequence == N_ADDS); /* it is not early */
    apply_and_feed(cluster, self, &(Input){ .worker = from });
}

static void take_feed(Cluster *cluster, uint32_t self, uint32_t from, const Letter *letter)
{
    Node *node = &cluster->nodes[self];
    uint64_t position = node->log->len;
    const InputVerdict verdict = replica_take(&position, letter->n);

    require(cluster, verdict != INPUT_MISSING);
    if (verdict == INPUT_NEXT) {
        apply(node, &letter->input);
        if (letter->input.sequence > 0)
            require(cluster,
                    input_sequences_take(node->had, letter->input.worker, letter->input.sequence));
    }
    post(cluster, self, from, &(Letter){ .kind = KIND_POSITION, .n = position });
}

static void take_position(Cluster *cluster, uint32_t self, uint32_t from, uint64_t position)
{
    Node *node = &cluster->nodes[self];
    HeldAnswer *released;

    if (!node->serves ||
        replica_feed_hears(&node->feed, from, 0, position, &released) != POSITION_HEARD)
        return;
    require(cluster,
            memcmp(cluster->nodes[from].log->data, node->log->data, position * sizeof(Input)) == 0);
    let_go(cluster, self, released);
}

static void keep(KeptInputs *kept, KeptInput *input)
{
    input->sequence = ++kept->n_sent;
    input->next = NULL;
    *(kept->first == NULL ? &kept->first : &kept->last->next) = input;
    kept->last = input;
}

static void drop_kept(KeptInputs *kept, uint64_t upto)
{
    while (kept->first != NULL && kept->first->sequence <= upto) {
        KeptInput *const dropped = kept->first;

        kept->first = dropped->next;
        g_free(dropped);
    }
}

static void take_ack(Cluster *cluster, uint32_t self, uint64_t sequence)
{
    Node *node = &cluster->nodes[self];

    require(cluster, sequence <= node->kept.n_sent);
    drop_kept(&node->kept, sequence);
    node->acked = MAX(node->acked, sequence);
}

static void take_rows(Cluster *cluster, uint32_t self, const Letter *rows)
{
    Node *node = &cluster->nodes[self];

    if (!node->waits)
        return;
    node->waits = false;
    for (uint32_t i = 0; i < cluster->n_nodes && !is_in(cluster->lost, self); i++) {
        require(cluster, rows->counts[i] >= node->needed[i]);
        cluster->shown[i] = MAX(cluster->shown[i], rows->counts[i]);
    }
}

static void receive(Cluster *cluster, uint32_t self, uint32_t from)
{
    Node *node = &cluster->nodes[self];
    g_autofree Letter *letter = g_queue_pop_head(&cluster->links[from][self]);

    if (is_in(node->deaf, from))
        return;
    switch (letter->kind) {
    case KIND_ADD:
        if (node->serves)
            take_add(cluster, self, from, &letter->input);
        break;
    case KIND_GET:
        if (node->serves)
            take_get(cluster, self, from);
        break;
    case KIND_ACK:
        take_ack(cluster, self, letter->n);
        break;
    case KIND_ROWS:
        take_rows(cluster, self, letter);
        break;
    case KIND_FEED:
        take_feed(cluster, self, from, letter);
        break;
    case KIND_POSITION:
        take_position(cluster, self, from, letter->n);
        break;
    case KIND_CLOCK:
        take_clock(cluster, self, from, letter->number);
        break;
    default:
        require(cluster, false);
    }
}

/* ---- the scheduler, and what it orders ---- */

static void lose(Cluster *cluster, uint32_t lost)
{
    cluster->lost |= 1u << lost;
    cluster->number++;
    cluster->closed = 0;
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        if (!is_in(cluster->lost, i))
            order(cluster, i,
                  &(Letter){
                      .kind = KIND_CLOSE, .number = cluster->number, .primary = cluster->lost });
}

static void hear_closed(Cluster *cluster, uint32_t from, uint32_t number, uint64_t position)
{
    uint32_t best = NO_NODE;

    if (number != cluster->number || is_in(cluster->lost, from))
        return;
    cluster->closed |= 1u << from;
    cluster->positions[from] = position;
    if ((cluster->closed | cluster->lost) != (1u << cluster->n_nodes) - 1)
        return;
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        if (cluster->nodes[i].is_holder && !is_in(cluster->lost, i) &&
            (best == NO_NODE || cluster->positions[i] > cluster->positions[best]))
            best = i;
    if (!is_in(cluster->lost, cluster->primary))
        best = cluster->primary;
    cluster->is_over = best == NO_NODE;
    if (cluster->is_over)
        return;
    cluster->primary = best;

    Letter promotion = { .kind = KIND_PROMOTE, .number = number };

    memcpy(promotion.counts, cluster->positions, sizeof promotion.counts);
    promotion.primary = cluster->lost;
    order(cluster, best, &promotion);
}

static void hear_promoted(Cluster *cluster, uint32_t from, uint32_t number)
{
    if (number != cluster->number || is_in(cluster->lost, from))
        return;
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        if (!is_in(cluster->lost, i))
            order(cluster, i, &(Letter){ .kind = KIND_OPEN, .number = number, .primary = from });
}

static void begin_serving(Cluster *cluster, uint32_t self, const Letter *promotion)
{
    Node *node = &cluster->nodes[self];

    node->serves = true;
    replica_feed_init(&node->feed, node->log->len);
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        if (i == self || !cluster->nodes[i].is_holder || is_in(promotion->primary, i))
            continue;
        require(cluster, replica_feed_add(&node->feed, i, 0, promotion->counts[i]));
        for (uint64_t k = promotion->counts[i]; k < node->log->len; k++)
            post(cluster, self, i,
                 &(Letter){
                     .kind = KIND_FEED, .n = k + 1, .input = g_array_index(node->log, Input, k) });
    }
}

static void promote(Cluster *cluster, uint32_t self, const Letter *promotion)
{
    Node *node = &cluster->nodes[self];

    node->number = promotion->number;
    if (!node->serves)
        begin_serving(cluster, self, promotion);
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        if (is_in(promotion->primary, i))
            let_go(cluster, self, replica_feed_drop(&node->feed, i));
        require(cluster, is_in(cluster->lost, self) ||
                             (node->had->senders[i].sequence >= cluster->nodes[i].acked &&
                              node->had->senders[i].sequence >= cluster->shown[i]));
    }
    hear_promoted(cluster, self, promotion->number);
}

static void tell_clock(Cluster *cluster, uint32_t self)
{
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        post(cluster, self, i,
             &(Letter){ .kind = KIND_CLOCK, .number = cluster->nodes[self].number });
}

static void open_map(Cluster *cluster, uint32_t self, const Letter *letter)
{
    Node *node = &cluster->nodes[self];

    node->number = letter->number;
    node->closed = false;
    if (node->primary != letter->primary) {
        node->primary = letter->primary;
        for (KeptInput *kept = node->kept.first; kept != NULL; kept = kept->next)
            post(cluster, self, node->primary,
                 &(Letter){ .kind = KIND_ADD, .input = ((Kept *)kept)->input });
        if (node->waits)
            post(cluster, self, node->primary, &(Letter){ .kind = KIND_GET });
    }
    if (node->told_clock)
        tell_clock(cluster, self);
}

static void obey(Cluster *cluster, uint32_t self)
{
    Node *node = &cluster->nodes[self];
    g_autofree Letter *letter = g_queue_pop_head(&cluster->orders[self]);

    switch (letter->kind) {
    case KIND_CLOSE:
        node->closed = true;
        node->deaf = letter->primary;
        hear_closed(cluster, self, letter->number, node->log->len);
        break;
    case KIND_PROMOTE:
        promote(cluster, self, letter);
        break;
    default:
        open_map(cluster, self, letter);
    }
}

/* ---- a worker ---- */

static void add(Cluster *cluster, uint32_t self)
{
    Node *node = &cluster->nodes[self];
    Kept *kept = g_new0(Kept, 1);

    keep(&node->kept, &kept->base);
    kept->input = (Input){ self, kept->base.sequence, draw(cluster, 1000) };
    node->sum = node->sum * 31 + kept->input.delta;
    post(cluster, self, node->primary, &(Letter){ .kind = KIND_ADD, .input = kept->input });
}

static void get(Cluster *cluster, uint32_t self)
{
    Node *node = &cluster->nodes[self];

    node->waits = true;
    node->n_gets++;
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        node->needed[i] = cluster->nodes[i].acked;
    post(cluster, self, node->primary, &(Letter){ .kind = KIND_GET });
}

static void work(Cluster *cluster, uint32_t self)
{
    Node *node = &cluster->nodes[self];

    if (node->closed || node->waits)
        return;
    if (node->n_gets < N_GETS && draw(cluster, 3) == 0) {
        get(cluster, self);
    } else if (node->kept.n_sent < N_ADDS) {
        add(cluster, self);
    } else if (!node->told_clock) {
        node->told_clock = true;
        tell_clock(cluster, self);
    }
}

/* ---- a run ---- */

static void begin(Cluster *cluster, uint64_t seed)
{
    *cluster =
        (Cluster){ .seed = seed, .random = g_rand_new_with_seed((guint32)seed), .number = 1 };
    cluster->n_nodes = 3 + draw(cluster, MOST_NODES - 2);
    cluster->n_replicas = 1 + draw(cluster, 3);
    cluster->n_replicas = MIN(cluster->n_replicas, cluster->n_nodes - 1);
    cluster->n_losses = draw(cluster, cluster->n_replicas + 2);
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        Node *node = &cluster->nodes[i];

        node->number = 1;
        node->is_holder = i <= cluster->n_replicas;
        node->log = g_array_new(FALSE, FALSE, sizeof(Input));
        node->had = input_sequences_new(cluster->n_nodes);
    }
    begin_serving(cluster, 0, &(Letter){ 0 });
}

static void end(Cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        Node *node = &cluster->nodes[i];
        HeldAnswer *held = replica_feed_take_held(&node->feed);

        let_go(cluster, i, held);
        drop_kept(&node->kept, UINT64_MAX);
        g_array_unref(node->log);
        g_free(node->had);
    }
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        g_queue_clear_full(&cluster->orders[i], g_free);
        for (uint32_t k = 0; k < cluster->n_nodes; k++)
            g_queue_clear_full(&cluster->links[i][k], g_free);
    }
    g_rand_free(cluster->random);
}

/* One step of somebody. Some links are slower than others. */
static void step(Cluster *cluster)
{
    const uint32_t self = draw(cluster, cluster->n_nodes);
    const uint32_t from = draw(cluster, cluster->n_nodes);

    switch (draw(cluster, 4)) {
    case 0:
        work(cluster, self);
        break;
    case 1:
        if (!g_queue_is_empty(&cluster->orders[self]))
            obey(cluster, self);
        break;
    default:
        if (!g_queue_is_empty(&cluster->links[from][self]) &&
            draw(cluster, 1 + (uint32_t)((cluster->seed + from * 7 + self) % 5)) == 0)
            receive(cluster, self, from);
    }
}

static bool has_ended(const Cluster *cluster)
{
    const Node *primary = &cluster->nodes[cluster->primary];

    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const Node *node = &cluster->nodes[i];

        if (!is_in(cluster->lost, i) &&
            (node->acked < N_ADDS || node->n_gets < N_GETS || node->waits || !primary->clocked[i]))
            return false;
    }
    return true;
}

static void check_end(Cluster *cluster)
{
    const Node *primary = &cluster->nodes[cluster->primary];

    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        require(cluster, is_in(cluster->lost, i) || primary->sums[i] == cluster->nodes[i].sum);
        require(cluster, primary->had->senders[i].sequence >= cluster->nodes[i].acked);
        require(cluster, primary->had->senders[i].sequence >= cluster->shown[i]);
    }
}

#define MOST_STEPS 400000

static void run(uint64_t seed)
{
    Cluster cluster;
    unsigned n_steps = 0;
    uint32_t n_lost = 0;

    begin(&cluster, seed);
    const uint32_t mean = 50 + draw(&cluster, 3000); /* steps between losses */

    while (!cluster.is_over && !has_ended(&cluster)) {
        require(&cluster, ++n_steps < MOST_STEPS); /* somebody waits for ever */
        if (n_lost < cluster.n_losses && draw(&cluster, mean) == 0) {
            const uint32_t lost = draw(&cluster, cluster.n_nodes);

            if (!is_in(cluster.lost, lost) && n_lost + 1 < cluster.n_nodes) {
                lose(&cluster, lost);
                n_lost++;
            }
        }
        step(&cluster);
    }
    require(&cluster, !cluster.is_over || n_lost > cluster.n_replicas);
    if (!cluster.is_over)
        check_end(&cluster);
    end(&cluster);
}

START_TEST(no_add_is_lost_or_doubled_whatever_nodes_are_lost)
{
    const uint64_t n_seeds = is_slow() ? 200 : 1000;

    for (uint64_t seed = 1; seed <= n_seeds; seed++)
        run((uint64_t)_i * 1000000 + seed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_feed_simulation");
    TCase *clusters = tcase_create("clusters");

    tcase_add_loop_test(clusters, no_add_is_lost_or_doubled_whatever_nodes_are_lost, 0, 4);
    suite_add_tcase(suite, clusters);
    return run_suite(suite);
}
