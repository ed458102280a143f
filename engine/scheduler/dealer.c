/* The dealer's state: inputs, each with the epoch and place where its dealing stands; the tickets that
 * nodes have; those that came back.
 *
 * Invariant: each block of an epoch of an input is in one of four states: behind the input's place,
 * with one node, come back, or read. */
#include "engine/scheduler/dealer.h"

#include <string.h>

#include "io/data/random.h"

#define SHUFFLED_MAX (UINT64_C(1) << 24) /* blocks: of more the order is the input's own */
#define NOBODY UINT32_MAX

typedef struct {
    char *name;
    uint64_t bytes;
    uint64_t n_blocks;
    bool any_order;
    bool *held; /* by node */
    uint32_t n_holders;
    uint32_t last; /* the node that was dealt a block of it last, or NOBODY */

    uint32_t epoch;  /* that is being dealt; the config's `epochs`: all have been */
    uint64_t next;   /* place in its order */
    uint32_t *order; /* NULL: its own */
} Pile;

struct Dealer {
    DealerConfig config;
    GArray *piles;       /* of Pile, by input */
    GHashTable *by_name; /* to input + 1 */
    GArray **dealt;      /* by node: of BlockTicket */
    GArray *returned;    /* of BlockTicket */
    Random random;
};

static Pile *pile_of(const Dealer *dealer, uint32_t input)
{
    return &g_array_index(dealer->piles, Pile, input);
}

static void pile_clear(Pile *pile)
{
    g_free(pile->name);
    g_free(pile->held);
    g_free(pile->order);
}

Dealer *dealer_new(const DealerConfig *config)
{
    Dealer *dealer = g_new0(Dealer, 1);

    dealer->config = *config;
    dealer->piles = g_array_new(FALSE, TRUE, sizeof(Pile));
    g_array_set_clear_func(dealer->piles, (GDestroyNotify)pile_clear);
    dealer->by_name = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    dealer->dealt = g_new(GArray *, config->n_nodes);
    for (uint32_t node = 0; node < config->n_nodes; node++)
        dealer->dealt[node] = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    dealer->returned = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    dealer->random = random_stream(config->seed, config->n_nodes);
    return dealer;
}

void dealer_free(Dealer *dealer)
{
    if (dealer == NULL)
        return;
    for (uint32_t node = 0; node < dealer->config.n_nodes; node++)
        g_array_free(dealer->dealt[node], TRUE);
    g_free(dealer->dealt);
    g_array_free(dealer->piles, TRUE);
    g_array_free(dealer->returned, TRUE);
    g_hash_table_unref(dealer->by_name);
    g_free(dealer);
}

/* ---- inputs ---- */

static void begin_epoch(const Dealer *dealer, Pile *pile, uint32_t input)
{
    g_clear_pointer(&pile->order, g_free);
    pile->next = 0;
    if (!dealer->config.shuffle || !pile->any_order || pile->epoch >= dealer->config.epochs ||
        pile->n_blocks > SHUFFLED_MAX)
        return;
    pile->order = g_try_new(uint32_t, MAX(pile->n_blocks, 1));
    if (pile->order == NULL)
        return;
    Random epochs = random_stream(dealer->config.seed, pile->epoch);
    Random blocks = random_stream(random_bits(&epochs), input);
    random_order(&blocks, pile->order, pile->n_blocks);
}

/* Goes on to the next epoch where all blocks of this one have been dealt. */
static void end_epochs(const Dealer *dealer, Pile *pile, uint32_t input)
{
    while (pile->epoch < dealer->config.epochs && pile->next >= pile->n_blocks) {
        pile->epoch = pile->n_blocks > 0 ? pile->epoch + 1 : dealer->config.epochs;
        begin_epoch(dealer, pile, input);
    }
}

uint32_t dealer_add_input(Dealer *dealer, uint32_t node, const DealerInput *input, char **wrong)
{
    uint32_t number = GPOINTER_TO_UINT(g_hash_table_lookup(dealer->by_name, input->name));

    if (number == 0) {
        Pile pile = { .name = g_strdup(input->name),
                      .bytes = input->bytes,
                      .n_blocks = input->n_blocks,
                      .any_order = input->any_order && input->n_blocks != INPUT_BLOCKS_UNKNOWN,
                      .held = g_new0(bool, dealer->config.n_nodes),
                      .last = NOBODY };

        if (dealer->piles->len >= DEALER_MAX_INPUTS) {
            pile_clear(&pile);
            *wrong = g_strdup_printf("more than %u files", DEALER_MAX_INPUTS);
            return DEALER_NO_INPUT;
        }
        g_array_append_val(dealer->piles, pile);
        number = dealer->piles->len;
        g_hash_table_insert(dealer->by_name, g_strdup(input->name), GUINT_TO_POINTER(number));
        begin_epoch(dealer, pile_of(dealer, number - 1), number - 1);
        end_epochs(dealer, pile_of(dealer, number - 1), number - 1);
    }

    Pile *pile = pile_of(dealer, --number);
    if (pile->bytes != input->bytes) {
        *wrong = g_strdup_printf("%s of %" G_GUINT64_FORMAT
                                 " bytes, where others see %" G_GUINT64_FORMAT,
                                 pile->name, input->bytes, pile->bytes);
        return DEALER_NO_INPUT;
    }
    pile->any_order &= input->any_order;
    if (!pile->held[node]) {
        pile->held[node] = true;
        pile->n_holders++;
    }
    if (input->n_blocks < pile->n_blocks) {
        pile->n_blocks = input->n_blocks;
        end_epochs(dealer, pile, number);
    }
    return number;
}

/* ---- dealing ---- */

/* Of what came back, the ticket of the lowest epoch that the node can read; its place, or len. */
static guint find_returned(const Dealer *dealer, uint32_t node)
{
    guint found = dealer->returned->len;
    uint32_t epoch = UINT32_MAX;

    for (guint i = 0; i < dealer->returned->len; i++) {
        const BlockTicket *ticket = &g_array_index(dealer->returned, BlockTicket, i);

        if (ticket->epoch < epoch && pile_of(dealer, ticket->input)->held[node]) {
            epoch = ticket->epoch;
            found = i;
        }
    }
    return found;
}

/* Whether one pile is to be dealt from before another; -1, 0, 1 as usual. */
static int compare_piles(const Pile *a, const Pile *b, uint32_t node)
{
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    if (a->n_holders != b->n_holders)
        return a->n_holders < b->n_holders ? -1 : 1;
    if (a->any_order != b->any_order)
        return a->any_order ? -1 : 1;
    if (a->any_order)
        return 0;
    /* what must be read from its beginning is best left to whoever has begun */
    const int rank_a = a->last == node ? 0 : a->last == NOBODY ? 1 : 2;
    const int rank_b = b->last == node ? 0 : b->last == NOBODY ? 1 : 2;
    return rank_a - rank_b;
}

/* Blocks that are left of a pile's epoch; of very many so many that the sum over all piles holds. */
static uint64_t left_of(const Pile *pile)
{
    return MIN(pile->n_blocks - pile->next, UINT32_MAX);
}

/* The pile to deal from; among equals, where blocks are shuffled, one by lot, each block having the
 * same chance. NULL: none. */
static Pile *choose_pile(Dealer *dealer, uint32_t node)
{
    Pile *chosen = NULL;
    uint64_t n_before = 0;

    for (guint i = 0; i < dealer->piles->len; i++) {
        Pile *pile = pile_of(dealer, i);

        if (!pile->held[node] || pile->epoch >= dealer->config.epochs)
            continue;
        const int order = chosen != NULL ? compare_piles(pile, chosen, node) : -1;
        const uint64_t n_left = left_of(pile);
        if (order < 0) {
            chosen = pile;
            n_before = n_left;
        } else if (order == 0 && dealer->config.shuffle && pile->any_order) {
            n_before += n_left;
            if (random_bits(&dealer->random) % n_before < n_left)
                chosen = pile;
        }
    }
    return chosen;
}

/* Blocks that the node may still be dealt; UINT64_MAX where nobody knows. */
static uint64_t count_left(const Dealer *dealer, uint32_t node)
{
    uint64_t n_left = 0;

    for (guint i = 0; i < dealer->piles->len; i++) {
        const Pile *pile = pile_of(dealer, i);
        const uint64_t epochs = dealer->config.epochs - pile->epoch;

        if (!pile->held[node] || epochs == 0)
            continue;
        if (epochs > 1 || pile->n_blocks == INPUT_BLOCKS_UNKNOWN)
            return UINT64_MAX;
        n_left += left_of(pile);
    }
    return n_left;
}

static bool deal_one(Dealer *dealer, uint32_t node, BlockTicket *ticket)
{
    const guint returned = find_returned(dealer, node);
    Pile *pile = choose_pile(dealer, node);

    if (returned < dealer->returned->len) {
        *ticket = g_array_index(dealer->returned, BlockTicket, returned);
        if (pile == NULL || ticket->epoch <= pile->epoch) {
            g_array_remove_index(dealer->returned, returned);
            return true;
        }
    }
    if (pile == NULL)
        return false;
    const uint32_t input = (uint32_t)(pile - pile_of(dealer, 0));
    *ticket = (BlockTicket){
        .epoch = pile->epoch,
        .input = input,
        .block = pile->order != NULL ? pile->order[pile->next] : pile->next,
    };
    pile->last = node;
    pile->next++;
    end_epochs(dealer, pile, input);
    return true;
}

size_t dealer_deal(Dealer *dealer, uint32_t node, size_t wanted, BlockTicket *tickets)
{
    /* The last blocks go out in ever smaller portions, so that all end at about the same time
     * (C. Polychronopoulos, D. Kuck: Guided self-scheduling, 1987). */
    const uint64_t share = count_left(dealer, node) / (2 * (uint64_t)dealer->config.n_nodes);
    const size_t n_most = (size_t)MIN(wanted, MAX(share, 1));
    size_t n = 0;

    while (n < n_most && deal_one(dealer, node, &tickets[n])) {
        g_array_append_val(dealer->dealt[node], tickets[n]);
        n++;
    }
    return n;
}

/* ---- what becomes of tickets ---- */

/* Takes a ticket from a node. */
static bool take_ticket(Dealer *dealer, uint32_t node, const BlockTicket *ticket)
{
    GArray *dealt = dealer->dealt[node];

    for (guint i = 0; i < dealt->len; i++) {
        const BlockTicket *own = &g_array_index(dealt, BlockTicket, i);

        if (own->epoch != ticket->epoch || own->input != ticket->input ||
            own->block != ticket->block)
            continue;
        if (ticket->n_read < own->n_read)
            return false;
        g_array_remove_index_fast(dealt, i);
        return true;
    }
    return false;
}

bool dealer_finish(Dealer *dealer, uint32_t node, const BlockTicket *ticket)
{
    return take_ticket(dealer, node, ticket);
}

bool dealer_give_back(Dealer *dealer, uint32_t node, const BlockTicket *ticket)
{
    if (!take_ticket(dealer, node, ticket))
        return false;
    g_array_append_val(dealer->returned, *ticket);
    return true;
}

bool dealer_absent(Dealer *dealer, uint32_t node, const BlockTicket *ticket)
{
    if (!take_ticket(dealer, node, ticket))
        return false;
    Pile *pile = pile_of(dealer, ticket->input);
    pile->n_blocks = MIN(pile->n_blocks, ticket->block);
    end_epochs(dealer, pile, ticket->input);
    return true;
}

void dealer_node_out(Dealer *dealer, uint32_t node)
{
    GArray *dealt = dealer->dealt[node];

    g_array_append_vals(dealer->returned, dealt->data, dealt->len);
    g_array_set_size(dealt, 0);
    for (guint i = 0; i < dealer->piles->len; i++) {
        Pile *pile = pile_of(dealer, i);

        if (pile->held[node]) {
            pile->held[node] = false;
            pile->n_holders--;
        }
    }
}
