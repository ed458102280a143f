/* The lines of the negotiation between nodes: see tensor_text.h.
 *
 * A notice is a letter, a rank and a set; behind an ASK come the numbers of the request and its
 * name, behind a MAKE the ranks of the set, as runs, behind an AGAIN the slot. A verdict is a
 * letter, its number, the set, and what its kind has. Floating-point numbers are written as their
 * bits, so that all nodes compare the same ones. */
#include "engine/collectives/negotiation/tensor_text.h"

#include <string.h>

#include "engine/collectives/negotiation/tensor_cutovers.h"

enum { MOST_DESCRIBED = 8 }; /* runs of ranks, for people */

static const char notice_letters[] = { 'a', 'j', 'l', 'g', 'm', 'd', 'o', 't', 'h', 'b', '\0' };
static const char verdict_letters[] = { 'r', 'f', 'j', 'c', 'm', 'd', 'x',
                                        'o', 't', 'l', 'w', 's', 'b', '\0' };

/* ---- numbers and names ---- */

/* By hand: with printf it takes five times as long, and what is asked again is little but numbers.
 */
static void write_number(GString *text, uint64_t number)
{
    char digits[24];
    size_t i = sizeof digits;

    do
        digits[--i] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    digits[--i] = ' ';
    g_string_append_len(text, digits + i, (gssize)(sizeof digits - i));
}

/* A number of at most `most`, with a space in front of it. */
static bool read_number(const char **at, uint64_t most, uint64_t *number)
{
    uint64_t value = 0;
    const char *digit = *at;

    if (*digit++ != ' ' || !g_ascii_isdigit(*digit))
        return false;
    for (; g_ascii_isdigit(*digit); digit++)
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*digit - '0'), &value))
            return false;
    if (value > most)
        return false;
    *number = value;
    *at = digit;
    return true;
}

static bool read_u32(const char **at, uint32_t most, uint32_t *number)
{
    uint64_t value;

    if (!read_number(at, most, &value))
        return false;
    *number = (uint32_t)value;
    return true;
}

static bool read_cutovers(const char **at, TensorCutovers *cutovers)
{
    return read_number(at, UINT64_MAX, cutovers) && tensor_cutovers_are_valid(*cutovers);
}

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static bool read_double(const char **at, double *value)
{
    uint64_t bits;

    if (!read_number(at, UINT64_MAX, &bits))
        return false;
    memcpy(value, &bits, sizeof bits);
    return true;
}

/* The kind whose letter comes first; the letter is taken. */
static bool read_letter(const char **at, const char *letters, uint32_t *kind)
{
    const char *const found = **at == '\0' ? NULL : strchr(letters, **at);

    if (found == NULL)
        return false;
    *kind = (uint32_t)(found - letters);
    ++*at;
    return true;
}

static bool read_end(const char **at)
{
    if (**at != '\n')
        return false;
    ++*at;
    return true;
}

/* A space, the name, and the line's end. */
static bool read_name(const char **at, char name[RUBATO_TENSOR_NAME_BYTES])
{
    const char *const end = strchr(*at, '\n');
    const size_t n = **at == ' ' && end != NULL ? (size_t)(end - *at) - 1 : 0;

    if (n == 0 || n >= RUBATO_TENSOR_NAME_BYTES)
        return false;
    memcpy(name, *at + 1, n);
    name[n] = '\0';
    *at = end + 1;
    return true;
}

/* A text of one line. (transfer full) */
static char *read_line(const char **at)
{
    const char *const end = strchr(*at, '\n');

    if (end == NULL)
        return NULL;
    char *const line = g_strndup(*at, (gsize)(end - *at));
    *at = end + 1;
    return line;
}

static void write_line(GString *text, const char *line)
{
    const gsize begin = text->len;

    g_string_append(text, line != NULL ? line : "");
    g_strdelimit(text->str + begin, "\n", ' ');
    g_string_append_c(text, '\n');
}

/* ---- notices ---- */

static void write_request(GString *text, const TensorRequest *request)
{
    write_number(text, request->operation);
    write_number(text, request->dtype);
    write_number(text, request->root);
    write_number(text, request->reduce.reduction);
    write_number(text, request->reduce.divides_by_all);
    write_number(text, request->reduce.compression);
    write_number(text, bits_of(request->reduce.prescale));
    write_number(text, bits_of(request->reduce.postscale));
    write_number(text, request->n_dims);
    for (uint32_t i = 0; i < request->n_dims; i++)
        write_number(text, request->shape[i]);
}

static bool read_request(const char **at, TensorRequest *request)
{
    uint32_t operation, dtype, reduction, by_all, compression;

    *request = (TensorRequest){ 0 };
    if (!read_u32(at, TENSOR_OPERATIONS - 1, &operation) || !read_u32(at, UINT8_MAX, &dtype) ||
        !read_u32(at, UINT32_MAX, &request->root) || !read_u32(at, UINT8_MAX, &reduction) ||
        !read_u32(at, 1, &by_all) || !read_u32(at, UINT8_MAX, &compression) ||
        !read_double(at, &request->reduce.prescale) ||
        !read_double(at, &request->reduce.postscale) ||
        !read_u32(at, RUBATO_TENSOR_MOST_DIMENSIONS, &request->n_dims))
        return false;
    request->operation = (TensorOperation)operation;
    request->dtype = (RubatoDtype)dtype;
    request->reduce.reduction = (RubatoReduction)reduction;
    request->reduce.divides_by_all = by_all != 0;
    request->reduce.compression = (RubatoCompression)compression;
    for (uint32_t i = 0; i < request->n_dims; i++)
        if (!read_number(at, UINT64_MAX, &request->shape[i]))
            return false;
    return true;
}

/* The first rank behind the run that begins at i. */
static uint32_t end_of_run(const uint32_t *ranks, uint32_t n, uint32_t i)
{
    uint32_t end = i + 1;

    while (end < n && ranks[end] == ranks[end - 1] + 1)
        end++;
    return end;
}

static void write_runs(GString *text, const uint32_t *ranks, uint32_t n)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        end = end_of_run(ranks, n, i);
        write_number(text, ranks[i]);
        write_number(text, ranks[end - 1]);
    }
}

/* Rising ranks, one at least. */
static bool read_runs(const char **at, uint32_t n_workers, TensorNotice *notice)
{
    g_autoptr(GArray) ranks = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    uint32_t next = 0;

    while (**at == ' ') {
        uint32_t first, last;

        if (!read_u32(at, n_workers - 1, &first) || !read_u32(at, n_workers - 1, &last) ||
            first < next || last < first)
            return false;
        for (uint32_t rank = first; rank <= last; rank++)
            g_array_append_val(ranks, rank);
        next = last + 1;
    }
    if (ranks->len == 0 || !read_end(at))
        return false;
    notice->n = ranks->len;
    notice->ranks = (uint32_t *)(void *)g_array_free(g_steal_pointer(&ranks), FALSE);
    return true;
}

void tensor_notice_write(GString *text, const TensorNotice *notice)
{
    g_string_append_c(text, notice_letters[notice->kind]);
    write_number(text, notice->rank);
    write_number(text, notice->set);
    if (notice->kind == TENSOR_NOTICE_GROUP || notice->kind == TENSOR_NOTICE_HEARD)
        write_number(text, notice->n);
    if (notice->kind == TENSOR_NOTICE_CUT)
        write_number(text, notice->cutovers);
    if (notice->kind == TENSOR_NOTICE_AGAIN)
        write_number(text, notice->slot);
    if (notice->kind == TENSOR_NOTICE_MAKE)
        write_runs(text, notice->ranks, notice->n);
    if (notice->kind == TENSOR_NOTICE_ASK) {
        write_request(text, &notice->request);
        g_string_append_c(text, ' ');
        g_string_append(text, notice->name);
    }
    g_string_append_c(text, '\n');
}

static bool read_notice(const char **at, uint32_t n_workers, TensorNotice *notice)
{
    switch (notice->kind) {
    case TENSOR_NOTICE_ASK:
        return read_request(at, &notice->request) && read_name(at, notice->name) &&
               tensor_request_check(&notice->request, notice->name, n_workers, NULL);
    case TENSOR_NOTICE_GROUP:
        return read_u32(at, RUBATO_TENSOR_MOST_OF_GROUP, &notice->n) && notice->n >= 2 &&
               read_end(at);
    case TENSOR_NOTICE_MAKE:
        return read_runs(at, n_workers, notice);
    case TENSOR_NOTICE_AGAIN:
        return read_u32(at, UINT32_MAX, &notice->slot) && read_end(at);
    case TENSOR_NOTICE_HEARD:
        return read_u32(at, UINT32_MAX, &notice->n) && read_end(at);
    case TENSOR_NOTICE_CUT:
        return read_cutovers(at, &notice->cutovers) && read_end(at);
    case TENSOR_NOTICE_JOIN:
    case TENSOR_NOTICE_LEAVE:
    case TENSOR_NOTICE_BACK:
    case TENSOR_NOTICE_REMOVE:
        return read_end(at);
    }
    return false;
}

bool tensor_notice_read(const char **text, uint32_t n_workers, TensorNotice *notice)
{
    const char *at = *text;
    uint32_t kind;

    notice->ranks = NULL;
    if (n_workers == 0 || !read_letter(&at, notice_letters, &kind) ||
        !read_u32(&at, n_workers - 1, &notice->rank) || !read_u32(&at, UINT32_MAX, &notice->set))
        return false;
    notice->kind = (TensorNoticeKind)kind;
    if (!read_notice(&at, n_workers, notice))
        return false;
    *text = at;
    return true;
}

void tensor_notice_clear(TensorNotice *notice)
{
    g_clear_pointer(&notice->ranks, g_free);
}

/* ---- verdicts ---- */

void tensor_verdict_write(GString *text, const TensorVerdict *verdict)
{
    g_string_append_c(text, verdict_letters[verdict->kind]);
    write_number(text, verdict->number);
    write_number(text, verdict->set);
    switch (verdict->kind) {
    case TENSOR_VERDICT_RUN:
        write_number(text, verdict->slot == TENSOR_NO_SLOT ? 0 : verdict->slot + UINT64_C(1));
        g_string_append_printf(text, " %s", verdict->name);
        g_string_append_c(text, '\n');
        write_line(text, verdict->ranks);
        return;
    case TENSOR_VERDICT_FAIL:
        write_number(text, verdict->code);
        g_string_append_printf(text, " %s\n", verdict->name);
        write_line(text, verdict->error);
        return;
    case TENSOR_VERDICT_JOINED:
        write_number(text, verdict->last);
        g_string_append_c(text, '\n');
        return;
    case TENSOR_VERDICT_MADE:
    case TENSOR_VERDICT_REMOVED:
        g_string_append_c(text, '\n');
        return;
    case TENSOR_VERDICT_AGAIN:
        write_number(text, verdict->slot);
        write_number(text, verdict->n);
        g_string_append_c(text, '\n');
        return;
    case TENSOR_VERDICT_CUT:
        write_number(text, verdict->cutovers);
        g_string_append_c(text, '\n');
        return;
    case TENSOR_VERDICT_SET:
        write_number(text, verdict->n);
        write_number(text, verdict->last);
        write_number(text, verdict->code);
        g_string_append_c(text, '\n');
        write_line(text, verdict->ranks);
        write_line(text, verdict->error);
        return;
    case TENSOR_VERDICT_BACK:
        write_number(text, verdict->n);
        write_number(text, verdict->last);
        write_number(text, verdict->slot);
        write_number(text, verdict->cutovers);
        write_number(text, verdict->code);
        g_string_append_c(text, '\n');
        write_line(text, verdict->error);
        return;
    case TENSOR_VERDICT_LOST:
    case TENSOR_VERDICT_REPLACED:
        write_number(text, verdict->node);
        write_number(text, verdict->n);
        write_number(text, verdict->code);
        g_string_append_c(text, '\n');
        write_line(text, verdict->error);
        return;
    case TENSOR_VERDICT_CLOSED:
    case TENSOR_VERDICT_REFUSED:
        write_number(text, verdict->code);
        g_string_append_c(text, '\n');
        write_line(text, verdict->error);
        return;
    }
}

static bool read_verdict(const char **at, TensorVerdict *verdict)
{
    switch (verdict->kind) {
    case TENSOR_VERDICT_RUN:
        if (!read_u32(at, UINT32_MAX, &verdict->slot) || !read_name(at, verdict->name) ||
            (verdict->ranks = read_line(at)) == NULL)
            return false;
        verdict->slot--; /* 0: TENSOR_NO_SLOT */
        if (verdict->ranks[0] == '\0')
            g_clear_pointer(&verdict->ranks, g_free);
        return true;
    case TENSOR_VERDICT_FAIL:
        return read_u32(at, UINT8_MAX, &verdict->code) && verdict->code > 0 &&
               read_name(at, verdict->name) && (verdict->error = read_line(at)) != NULL;
    case TENSOR_VERDICT_JOINED:
        return read_u32(at, UINT32_MAX, &verdict->last) && read_end(at);
    case TENSOR_VERDICT_MADE:
    case TENSOR_VERDICT_REMOVED:
        return read_end(at);
    case TENSOR_VERDICT_AGAIN:
        return read_u32(at, UINT32_MAX, &verdict->slot) &&
               read_u32(at, RUBATO_TENSOR_MOST_OF_GROUP, &verdict->n) && verdict->n > 0 &&
               read_end(at);
    case TENSOR_VERDICT_CUT:
        return read_cutovers(at, &verdict->cutovers) && read_end(at);
    case TENSOR_VERDICT_SET:
        if (!read_u32(at, UINT32_MAX, &verdict->n) || !read_u32(at, UINT32_MAX, &verdict->last) ||
            !read_u32(at, UINT8_MAX, &verdict->code) || !read_end(at) ||
            (verdict->ranks = read_line(at)) == NULL || (verdict->error = read_line(at)) == NULL)
            return false;
        if (verdict->ranks[0] == '\0')
            g_clear_pointer(&verdict->ranks, g_free);
        return true;
    case TENSOR_VERDICT_BACK:
        return read_u32(at, UINT32_MAX, &verdict->n) && read_u32(at, UINT32_MAX, &verdict->last) &&
               read_u32(at, UINT32_MAX, &verdict->slot) && read_cutovers(at, &verdict->cutovers) &&
               read_u32(at, UINT8_MAX, &verdict->code) && read_end(at) &&
               (verdict->error = read_line(at)) != NULL;
    case TENSOR_VERDICT_LOST:
    case TENSOR_VERDICT_REPLACED:
        return read_u32(at, UINT32_MAX, &verdict->node) && read_u32(at, UINT32_MAX, &verdict->n) &&
               read_u32(at, UINT8_MAX, &verdict->code) && verdict->code > 0 && read_end(at) &&
               (verdict->error = read_line(at)) != NULL;
    case TENSOR_VERDICT_CLOSED:
    case TENSOR_VERDICT_REFUSED:
        return read_u32(at, UINT8_MAX, &verdict->code) && verdict->code > 0 && read_end(at) &&
               (verdict->error = read_line(at)) != NULL;
    }
    return false;
}

bool tensor_verdict_read(const char **text, TensorVerdict *verdict)
{
    g_auto(TensorVerdict) read = { 0 };
    const char *at = *text;
    uint32_t kind;

    if (!read_letter(&at, verdict_letters, &kind) || !read_number(&at, UINT64_MAX, &read.number) ||
        !read_u32(&at, UINT32_MAX, &read.set))
        return false;
    read.kind = (TensorVerdictKind)kind;
    if (!read_verdict(&at, &read))
        return false;
    *verdict = read;
    read = (TensorVerdict){ 0 };
    *text = at;
    return true;
}

bool tensor_verdict_tells_loss(const char *text, uint32_t *node)
{
    g_auto(TensorVerdict) verdict = { 0 };

    if (*text != verdict_letters[TENSOR_VERDICT_LOST] || !tensor_verdict_read(&text, &verdict))
        return false;
    *node = verdict.node;
    return true;
}

void tensor_verdict_clear(TensorVerdict *verdict)
{
    g_free(verdict->ranks);
    g_free(verdict->error);
    *verdict = (TensorVerdict){ 0 };
}

/* ---- ranks ---- */

char *tensor_ranks_write(void *const *tags, uint32_t n_workers)
{
    GString *const text = g_string_new(NULL);

    for (uint32_t rank = 0, end; rank < n_workers; rank = end + 1) {
        for (end = rank; end < n_workers && tags[end] != NULL;)
            end++;
        if (end == rank)
            continue;
        if (rank == 0 && end == n_workers) {
            g_string_free(text, TRUE);
            return NULL;
        }
        if (text->len > 0)
            g_string_append_c(text, ',');
        g_string_append_printf(text, " %u %u", rank, end - 1);
    }
    return g_string_free(text, FALSE);
}

bool tensor_ranks_read(const char *ranks, uint32_t n_workers, bool *asked)
{
    uint32_t next = 0;

    for (uint32_t rank = 0; rank < n_workers; rank++)
        asked[rank] = ranks == NULL;
    while (ranks != NULL) {
        uint32_t first, last;

        if (!read_u32(&ranks, n_workers - 1, &first) || !read_u32(&ranks, n_workers - 1, &last) ||
            first < next || last < first)
            return false;
        for (uint32_t rank = first; rank <= last; rank++)
            asked[rank] = true;
        next = last + 1;
        if (*ranks != ',')
            return *ranks == '\0';
        ranks++;
    }
    return true;
}

char *tensor_ranks_describe(const uint32_t *ranks, uint32_t n)
{
    GString *const text = g_string_new(n == 1 ? "worker " : "workers ");

    for (uint32_t i = 0, end, n_runs = 0; i < n; i = end) {
        end = end_of_run(ranks, n, i);
        if (n_runs++ == MOST_DESCRIBED) {
            g_string_append_printf(text, " and %u more", n - i);
            break;
        }
        g_string_append_printf(text, "%s%u", i > 0 ? ", " : "", ranks[i]);
        if (end - i > 1)
            g_string_append_printf(text, "-%u", ranks[end - 1]);
    }
    return g_string_free(text, FALSE);
}
