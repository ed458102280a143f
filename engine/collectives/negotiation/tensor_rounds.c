/* Rounds of bit vectors: see tensor_rounds.h.
 *
 * As bytes, a vector is: cuts heard 4; cut-overs 4; then of each set: id 4; words 4; serial 8;
 * whether a worker has joined 8; the words of the first bits, and those of the second, 8 each. */
#include "engine/collectives/negotiation/tensor_rounds.h"

#include <string.h>

#include "engine/collectives/negotiation/tensor_slots.h"

enum { SET_BITS = 12, NAME_BITS = 13, SET_BYTES = 24, MOST_WORDS = TENSOR_SLOTS_MOST_NAMES / 64 };

struct TensorRounds {
    uint32_t n_nodes, self;
    uint32_t n_tellers; /* nodes with workers */
    bool *tells;        /* by node */
    bool *lost;         /* the same */
    uint64_t round;
    TensorVector **vectors; /* of this round, by node; NULL: it has not come */
    TensorVector **next;    /* the same of the next one */
    uint32_t n_came, n_next;
};

uint64_t tensor_round_number(uint64_t round, uint32_t set, uint32_t name)
{
    return TENSOR_ROUND_NUMBER | round << (SET_BITS + NAME_BITS) | (uint64_t)set << NAME_BITS |
           name;
}

uint64_t tensor_round_of(uint64_t number)
{
    return (number & ~TENSOR_ROUND_NUMBER) >> (SET_BITS + NAME_BITS);
}

/* ---- vectors ---- */

TensorVector *tensor_vector_new(uint32_t n_cuts, TensorCutovers cutovers)
{
    TensorVector *const vector = g_new(TensorVector, 1);

    *vector = (TensorVector){ n_cuts, cutovers, g_array_new(FALSE, FALSE, sizeof(TensorBits)) };
    return vector;
}

void tensor_vector_free(TensorVector *vector)
{
    if (vector == NULL)
        return;
    for (guint i = 0; i < vector->sets->len; i++)
        g_free(g_array_index(vector->sets, TensorBits, i).again); /* in_full lies behind it */
    g_array_unref(vector->sets);
    g_free(vector);
}

TensorBits *tensor_vector_add(TensorVector *vector, uint32_t set, uint64_t serial, uint32_t n_slots)
{
    const uint32_t n_words = (n_slots + 63) / 64;
    uint64_t *const words = g_new0(uint64_t, 2 * (size_t)n_words + 1);
    const TensorBits bits = {
        .set = set, .n_words = n_words, .serial = serial, .again = words, .in_full = words + n_words
    };

    g_array_append_val(vector->sets, bits);
    return &g_array_index(vector->sets, TensorBits, vector->sets->len - 1);
}

static void append(GByteArray *bytes, const void *from, size_t n)
{
    g_byte_array_append(bytes, from, (guint)n);
}

GByteArray *tensor_vector_write(const TensorVector *vector)
{
    GByteArray *const bytes = g_byte_array_new();

    append(bytes, &vector->n_cuts, sizeof vector->n_cuts);
    append(bytes, &vector->cutovers, sizeof vector->cutovers);
    for (guint i = 0; i < vector->sets->len; i++) {
        const TensorBits *const set = &g_array_index(vector->sets, TensorBits, i);

        append(bytes, &set->set, sizeof set->set);
        append(bytes, &set->n_words, sizeof set->n_words);
        append(bytes, &set->serial, sizeof set->serial);
        append(bytes, &set->is_joined, sizeof set->is_joined);
        append(bytes, set->again, set->n_words * sizeof *set->again);
        append(bytes, set->in_full, set->n_words * sizeof *set->in_full);
    }
    return bytes;
}

/* One set. Returns its bytes; 0: they make no sense. */
static size_t read_set(const uint8_t *at, size_t n, TensorVector *vector)
{
    uint32_t set, n_words;
    uint64_t serial, is_joined;

    if (n < SET_BYTES)
        return 0;
    memcpy(&set, at, sizeof set);
    memcpy(&n_words, at + 4, sizeof n_words);
    memcpy(&serial, at + 8, sizeof serial);
    memcpy(&is_joined, at + 16, sizeof is_joined);
    if (set >= TENSOR_ROUND_SETS || n_words > MOST_WORDS || is_joined > 1 ||
        n - SET_BYTES < 2 * (size_t)n_words * sizeof(uint64_t))
        return 0;
    if (vector->sets->len > 0 &&
        set <= g_array_index(vector->sets, TensorBits, vector->sets->len - 1).set)
        return 0;
    TensorBits *const bits = tensor_vector_add(vector, set, serial, n_words * 64);
    const size_t n_bytes = n_words * sizeof(uint64_t);
    bits->is_joined = is_joined;
    memcpy(bits->again, at + SET_BYTES, n_bytes);
    memcpy(bits->in_full, at + SET_BYTES + n_bytes, n_bytes);
    return SET_BYTES + 2 * n_bytes;
}

TensorVector *tensor_vector_read(const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    uint32_t n_cuts;
    TensorCutovers cutovers;

    if (n < sizeof n_cuts + sizeof cutovers)
        return NULL;
    memcpy(&n_cuts, at, sizeof n_cuts);
    memcpy(&cutovers, at + sizeof n_cuts, sizeof cutovers);
    if (!tensor_cutovers_are_valid(cutovers))
        return NULL;
    TensorVector *const vector = tensor_vector_new(n_cuts, cutovers);
    for (size_t done = sizeof n_cuts + sizeof cutovers, n_set; done < n; done += n_set) {
        n_set = read_set(at + done, n - done, vector);
        if (n_set == 0) {
            tensor_vector_free(vector);
            return NULL;
        }
    }
    return vector;
}

/* ---- rounds ---- */

TensorRounds *tensor_rounds_new(const uint32_t *n_workers_of, uint32_t n_nodes, uint32_t self)
{
    TensorRounds *const rounds = g_new0(TensorRounds, 1);

    rounds->n_nodes = n_nodes;
    rounds->self = self;
    rounds->round = 1;
    rounds->tells = g_new0(bool, n_nodes);
    rounds->lost = g_new0(bool, n_nodes);
    rounds->vectors = g_new0(TensorVector *, n_nodes);
    rounds->next = g_new0(TensorVector *, n_nodes);
    for (uint32_t node = 0; node < n_nodes; node++) {
        rounds->tells[node] = n_workers_of[node] > 0;
        rounds->n_tellers += rounds->tells[node];
    }
    return rounds;
}

static void clear_vectors(TensorRounds *rounds)
{
    for (uint32_t node = 0; node < rounds->n_nodes; node++)
        g_clear_pointer(&rounds->vectors[node], tensor_vector_free);
}

void tensor_rounds_free(TensorRounds *rounds)
{
    if (rounds == NULL)
        return;
    clear_vectors(rounds);
    for (uint32_t node = 0; node < rounds->n_nodes; node++)
        tensor_vector_free(rounds->next[node]);
    g_free(rounds->vectors);
    g_free(rounds->next);
    g_free(rounds->tells);
    g_free(rounds->lost);
    g_free(rounds);
}

uint64_t tensor_rounds_number(const TensorRounds *rounds)
{
    return rounds->round;
}

const char *tensor_rounds_take(TensorRounds *rounds, uint32_t node, uint64_t round,
                               const void *bytes, size_t n)
{
    const bool is_next = round == rounds->round + 1;
    TensorVector **const at = is_next ? &rounds->next[node] : &rounds->vectors[node];

    if (rounds->lost[node])
        return NULL;
    if (node == rounds->self || !rounds->tells[node] || (!is_next && round != rounds->round) ||
        *at != NULL)
        return "a vector of bits of another round";
    *at = tensor_vector_read(bytes, n);
    if (*at == NULL)
        return "a vector of bits that makes no sense";
    if (is_next)
        rounds->n_next++;
    else
        rounds->n_came++;
    return NULL;
}

void tensor_rounds_lose(TensorRounds *rounds, uint32_t node)
{
    if (!rounds->tells[node])
        return;
    rounds->tells[node] = false;
    rounds->lost[node] = true;
    rounds->n_tellers--;
    rounds->n_came -= rounds->vectors[node] != NULL;
    rounds->n_next -= rounds->next[node] != NULL;
    g_clear_pointer(&rounds->vectors[node], tensor_vector_free);
    g_clear_pointer(&rounds->next[node], tensor_vector_free);
}

bool tensor_rounds_has_told(const TensorRounds *rounds)
{
    return rounds->vectors[rounds->self] != NULL;
}

bool tensor_rounds_awaited(const TensorRounds *rounds)
{
    return rounds->n_came > 0 && !tensor_rounds_has_told(rounds);
}

/* Whether there is a bit. */
static bool has_any(const uint64_t *bits, uint32_t n_words)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < n_words; i++)
        any |= bits[i];
    return any != 0;
}

/* Whether a node asks again for something in the set, and tells nothing else of it. */
static bool only_asks_again(const TensorBits *bits)
{
    return bits->is_joined == 0 && has_any(bits->again, bits->n_words) &&
           !has_any(bits->in_full, bits->n_words);
}

bool tensor_rounds_may_wait(const TensorRounds *rounds,
                            bool (*has_workers)(const void *user, const TensorBits *bits),
                            const void *user)
{
    bool may_wait = true;

    for (uint32_t node = 0; node < rounds->n_nodes && may_wait; node++) {
        const TensorVector *const vector = rounds->vectors[node];

        if (vector == NULL)
            continue;
        may_wait = vector->sets->len > 0;
        for (guint i = 0; i < vector->sets->len && may_wait; i++) {
            const TensorBits *const bits = &g_array_index(vector->sets, TensorBits, i);

            may_wait = only_asks_again(bits) && has_workers(user, bits);
        }
    }
    return may_wait;
}

void tensor_rounds_tell(TensorRounds *rounds, TensorVector *own)
{
    rounds->vectors[rounds->self] = own;
    rounds->n_came++;
}

bool tensor_rounds_is_complete(const TensorRounds *rounds)
{
    return rounds->n_came == rounds->n_tellers;
}

void tensor_rounds_end(TensorRounds *rounds)
{
    TensorVector **const ended = rounds->vectors;

    clear_vectors(rounds);
    rounds->vectors = rounds->next;
    rounds->next = ended;
    rounds->n_came = rounds->n_next;
    rounds->n_next = 0;
    rounds->round++;
}

const TensorVector *tensor_rounds_own(const TensorRounds *rounds)
{
    return rounds->vectors[rounds->self];
}

/* NULL: the node has told nothing of it. */
static const TensorBits *find_set(const TensorVector *vector, const TensorBits *own)
{
    for (guint i = 0; i < vector->sets->len; i++) {
        const TensorBits *const bits = &g_array_index(vector->sets, TensorBits, i);

        if (bits->set == own->set)
            return bits->serial == own->serial ? bits : NULL;
    }
    return NULL;
}

static bool has_bit(const uint64_t *bits, uint32_t n_words, uint32_t slot)
{
    return slot / 64 < n_words && (bits[slot / 64] >> slot % 64 & 1) != 0;
}

/* The node's workers ask again, and none asks in full. bits: of the set; NULL: it tells nothing. */
static bool is_ready(const TensorBits *bits, uint32_t slot)
{
    return bits != NULL && has_bit(bits->again, bits->n_words, slot) && bits->is_joined == 0 &&
           !has_bit(bits->in_full, bits->n_words, slot);
}

bool tensor_rounds_may_run(const TensorRounds *rounds, const TensorBits *own, uint32_t slot,
                           const uint32_t *n_members_of)
{
    bool may_run = true;

    for (uint32_t node = 0; node < rounds->n_nodes && may_run; node++)
        may_run = n_members_of[node] == 0 ||
                  (!rounds->lost[node] && (rounds->vectors[node] == NULL ||
                                           is_ready(find_set(rounds->vectors[node], own), slot)));
    return may_run;
}

TensorRoundOutcome tensor_rounds_outcome(const TensorRounds *rounds, const TensorBits *own,
                                         uint32_t slot, const uint32_t *n_members_of)
{
    bool runs = true, in_full = false;

    for (uint32_t node = 0; node < rounds->n_nodes; node++) {
        if (n_members_of[node] == 0)
            continue;
        if (rounds->lost[node])
            return TENSOR_ROUND_OPEN;
        const TensorBits *const bits = find_set(rounds->vectors[node], own);

        runs = runs && bits != NULL && has_bit(bits->again, bits->n_words, slot);
        in_full =
            in_full ||
            (bits != NULL && (bits->is_joined == 1 || has_bit(bits->in_full, bits->n_words, slot)));
    }
    return in_full ? TENSOR_ROUND_IN_FULL : runs ? TENSOR_ROUND_RUNS : TENSOR_ROUND_OPEN;
}

bool tensor_rounds_cutovers(const TensorRounds *rounds, TensorCutovers *cutovers)
{
    uint32_t n_cuts = UINT32_MAX;

    for (uint32_t node = 0; node < rounds->n_nodes; node++) {
        const TensorVector *const vector = rounds->vectors[node];

        if (vector == NULL || vector->n_cuts >= n_cuts)
            continue;
        n_cuts = vector->n_cuts;
        *cutovers = vector->cutovers;
    }
    return n_cuts > 0;
}
