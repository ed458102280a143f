/* The built-in handlers against plain loops, over dtypes, storages and numbers of servers. */
#include <math.h>
#include <rubato/rubato.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_KEYS = 700, WIDTH = 3, N_VALUES = N_KEYS * WIDTH };

static const RubatoDtype dtypes[] = { RUBATO_F32, RUBATO_F64, RUBATO_I32, RUBATO_I64 };
static const uint32_t servers[] = { 1, 2, 4 };

/* A table with numbers of which sums in double depend on their order. */
typedef struct {
    RubatoDtype dtype;
    bool hashed;
    RubatoEngine *engine;
    RubatoKey keys[N_KEYS];
    char values[N_VALUES * sizeof(int64_t)];
    double doubles[N_VALUES]; /* the same as doubles */
} Filled;

static RubatoKey key_of(bool hashed, uint64_t i)
{
    return hashed ? rubato_mix64(i) : 40 + i;
}

static void fill(Filled *filled, const char *table, uint64_t seed)
{
    const RubatoTableSpec spec = { .name = table,
                                   .dtype = filled->dtype,
                                   .width = WIDTH,
                                   .first_key = filled->hashed ? 0 : 40,
                                   .n_keys = filled->hashed ? 0 : N_KEYS,
                                   .parts = 5 };
    uint64_t state = seed;

    create_table(filled->engine, &spec);
    for (size_t i = 0; i < N_VALUES; i++) {
        const double wild =
            ldexp((double)(int64_t)next_random(&state), -(int)random_below(&state, 90));

        switch (filled->dtype) {
        case RUBATO_F32:
            ((float *)(void *)filled->values)[i] = (float)wild;
            filled->doubles[i] = (double)((float *)(void *)filled->values)[i];
            break;
        case RUBATO_F64:
            ((double *)(void *)filled->values)[i] = filled->doubles[i] = wild;
            break;
        case RUBATO_I32:
            ((int32_t *)(void *)filled->values)[i] = (int32_t)next_random(&state);
            filled->doubles[i] = ((int32_t *)(void *)filled->values)[i];
            break;
        case RUBATO_I64: /* small enough that a double holds it */
            ((int64_t *)(void *)filled->values)[i] = (int64_t)(next_random(&state) >> 12);
            filled->doubles[i] = (double)((int64_t *)(void *)filled->values)[i];
            break;
        case RUBATO_U8:  /* only in ragged rows */
        case RUBATO_F16: /* the rest: of tensors alone */
        case RUBATO_BF16:
        case RUBATO_I8:
        case RUBATO_I16:
        case RUBATO_BOOL:
            break;
        }
    }
    memset(filled->values, 0, 4 * rubato_dtype_size(filled->dtype));
    memset(filled->doubles, 0, 4 * sizeof(double));
    for (uint64_t i = 0; i < N_KEYS; i++)
        filled->keys[i] = key_of(filled->hashed, i);
    ck_assert(rubato_engine_set(filled->engine, table, filled->keys, N_KEYS, filled->values, NULL));
}

static int compare_magnitudes(const void *a, const void *b)
{
    const double one = fabs(*(const double *)a), other = fabs(*(const double *)b);

    return one < other ? -1 : one > other;
}

/* Exact enough to judge a correctly rounded sum: in long double, the small terms first, twice
 * compensated. */
static double sum_of(const double *terms, size_t n)
{
    g_autofree double *sorted = g_memdup2(terms, n * sizeof *terms);
    long double sum = 0, lost = 0;

    qsort(sorted, n, sizeof *sorted, compare_magnitudes);
    for (size_t i = 0; i < n; i++) {
        const long double next = sum + (long double)sorted[i];
        const long double back = next - sum;

        lost += (sum - (next - back)) + ((long double)sorted[i] - back);
        sum = next;
    }
    return (double)(sum + lost);
}

static void expect_close(double value, double expected)
{
    require_msg(fabs(value - expected) <= fabs(expected) * 1e-15, "%.17g is not %.17g", value,
                expected);
}

static void check_sums(Filled *filled)
{
    const RubatoHandlerCall sum = { .table = "t", .handler = "sum" };
    const RubatoHandlerCall norm = { .table = "t", .handler = "norm" };
    double squares[N_VALUES];

    for (size_t i = 0; i < N_VALUES; i++)
        squares[i] = filled->doubles[i] * filled->doubles[i];
    expect_close(call_handler_f64(filled->engine, &sum), sum_of(filled->doubles, N_VALUES));
    expect_close(call_handler_f64(filled->engine, &norm), sqrt(sum_of(squares, N_VALUES)));
}

static void check_count(Filled *filled)
{
    g_autoptr(GBytes) result =
        call_handler(filled->engine, &(RubatoHandlerCall){ .table = "t", .handler = "count" });
    RubatoByteReader reader = rubato_byte_reader_of(result);
    uint64_t n_values = 0;

    for (size_t i = 0; i < N_VALUES; i++)
        n_values += filled->doubles[i] != 0;
    ck_assert_uint_eq(rubato_read_u64(&reader), N_KEYS);
    ck_assert_uint_eq(rubato_read_u64(&reader), n_values);
    ck_assert_uint_lt(n_values, N_VALUES);
    ck_assert(rubato_byte_reader_finish(&reader, "the result", NULL));
}

static void check_top_k(Filled *filled, uint32_t k, uint32_t column, uint32_t order)
{
    const uint32_t arguments[] = { k, column, order };
    g_autoptr(GBytes) result =
        call_handler(filled->engine, &(RubatoHandlerCall){ .table = "t",
                                                           .handler = "top_k",
                                                           .arguments = arguments,
                                                           .n_argument_bytes = sizeof arguments });
    RubatoByteReader reader = rubato_byte_reader_of(result);
    bool taken[N_KEYS] = { false };

    for (uint32_t place = 0; place < MIN(k, N_KEYS); place++) {
        size_t best = N_KEYS;

        for (size_t i = 0; i < N_KEYS; i++) {
            const double value = filled->doubles[i * WIDTH + column];
            const double held = best == N_KEYS ? 0 : filled->doubles[best * WIDTH + column];
            const double one = order == 0 ? value : fabs(value);
            const double other = order == 0 ? held : fabs(held);

            if (!taken[i] && (best == N_KEYS || one > other ||
                              (!(one < other) && filled->keys[i] < filled->keys[best])))
                best = i;
        }
        taken[best] = true;
        ck_assert_uint_eq(rubato_read_u64(&reader), filled->keys[best]);
        QUICK_ASSERT(rubato_read_f64(&reader) == filled->doubles[best * WIDTH + column]);
    }
    ck_assert(rubato_byte_reader_finish(&reader, "the result", NULL));
}

static void check_histogram(Filled *filled)
{
    const double low = -1e3, high = 1e9;
    const uint32_t n = 7;
    uint64_t expected[3 + 7] = { 0 };
    g_auto(RubatoByteWriter) arguments = rubato_byte_writer_new(SIZE_MAX);

    rubato_write_f64(&arguments, low);
    rubato_write_f64(&arguments, high);
    rubato_write_u32(&arguments, n);
    g_autoptr(GBytes) result =
        call_handler(filled->engine, &(RubatoHandlerCall){ .table = "t",
                                                           .handler = "histogram",
                                                           .arguments = arguments.bytes,
                                                           .n_argument_bytes = arguments.n });
    for (size_t i = 0; i < N_VALUES; i++) {
        const double value = filled->doubles[i];

        if (value < low)
            expected[0]++;
        else if (value >= high)
            expected[1]++;
        else
            expected[3 + (size_t)((value - low) * n / (high - low))]++;
    }
    ck_assert_uint_eq(g_bytes_get_size(result), sizeof expected);
    ck_assert_mem_eq(g_bytes_get_data(result, NULL), expected, sizeof expected);
}

static void check_dot_of_rows(Filled *filled)
{
    static const size_t pairs[][2] = { { 1, 2 }, { 3, 3 }, { 0, 699 }, { 500, 20 } };

    for (size_t i = 0; i < G_N_ELEMENTS(pairs); i++) {
        const size_t a = pairs[i][0], b = pairs[i][1];
        const RubatoKey keys[] = { filled->keys[a], filled->keys[b] };
        double products[WIDTH];

        for (int column = 0; column < WIDTH; column++)
            products[column] = filled->doubles[a * WIDTH + (size_t)column] *
                               filled->doubles[b * WIDTH + (size_t)column];
        expect_close(
            call_handler_f64(filled->engine, &(RubatoHandlerCall){ .table = "t",
                                                                   .handler = "dot",
                                                                   .scope = RUBATO_SCOPE_KEYS,
                                                                   .keys = keys,
                                                                   .n_keys = 2 }),
            sum_of(products, WIDTH));
    }
}

static void check_dot_of_tables(Filled *filled)
{
    Filled other = *filled;
    double products[N_VALUES];

    fill(&other, "u", 99);
    for (size_t i = 0; i < N_VALUES; i++)
        products[i] = filled->doubles[i] * other.doubles[i];
    const RubatoHandlerCall dot = {
        .table = "t", .handler = "dot", .arguments = "u", .n_argument_bytes = 1
    };
    const double value = call_handler_f64(filled->engine, &dot);

    /* products of doubles are rounded here, and not there */
    require_msg(fabs(value - sum_of(products, N_VALUES)) <= fabs(value) * 1e-12, "%.17g", value);
}

static void check_scale(Filled *filled)
{
    const double factor = -2.5;
    const RubatoHandlerCall scale = {
        .table = "t", .handler = "scale", .arguments = &factor, .n_argument_bytes = sizeof factor
    };
    g_autofree char *values = g_malloc(sizeof filled->values);
    GError *error = NULL;

    if (filled->dtype != RUBATO_F32 && filled->dtype != RUBATO_F64) {
        ck_assert(!rubato_engine_call_handler(filled->engine, &scale, NULL, &error));
        check_error(&error, RUBATO_ERROR_TYPE, "table t", "handler scale", "f64", NULL);
        return;
    }
    g_autoptr(GBytes) nothing = call_handler(filled->engine, &scale);
    ck_assert_uint_eq(g_bytes_get_size(nothing), 0);
    ck_assert(rubato_engine_get(filled->engine, "t", filled->keys, N_KEYS, values, NULL));
    for (size_t i = 0; i < N_VALUES; i++)
        QUICK_ASSERT(filled->dtype == RUBATO_F32
                         ? ((float *)(void *)values)[i] ==
                               ((float *)(void *)filled->values)[i] * (float)factor
                         : ((double *)(void *)values)[i] == filled->doubles[i] * factor);
}

START_TEST(a_built_in_handler_gives_what_a_loop_gives)
{
    const size_t n_dtypes = G_N_ELEMENTS(dtypes);
    Filled filled = { .dtype = dtypes[(size_t)_i % n_dtypes],
                      .hashed = (size_t)_i / n_dtypes % 2 == 1 };
    g_autoptr(RubatoEngine) engine = engine_with_servers(servers[(size_t)_i / n_dtypes / 2]);

    filled.engine = engine;
    fill(&filled, "t", 7);
    check_sums(&filled);
    check_count(&filled);
    check_top_k(&filled, 10, 1, 0);
    check_top_k(&filled, 10, 2, 1);
    check_top_k(&filled, N_KEYS + 5, 0, 0);
    check_histogram(&filled);
    check_dot_of_rows(&filled);
    check_dot_of_tables(&filled);
    check_scale(&filled);
}
END_TEST

/* The same bits for every number of servers and parts, and for either storage. */
START_TEST(sums_do_not_depend_on_servers_or_parts)
{
    uint64_t seen[3] = { 0 };

    for (uint32_t i = 0; i < 6; i++) {
        g_autoptr(RubatoEngine) engine = engine_with_servers(1 + i % 3);
        const RubatoTableSpec spec = { .name = "t",
                                       .dtype = RUBATO_F64,
                                       .storage = i % 2 == 0 ? "dense" : "hash",
                                       .n_keys = i % 2 == 0 ? N_KEYS : 0,
                                       .parts = 1 + 3 * i };
        uint64_t state = 3;

        create_table(engine, &spec);
        for (RubatoKey key = 0; key < N_KEYS; key++) {
            const double value =
                ldexp((double)(int64_t)next_random(&state), (int)random_below(&state, 120) - 60);

            ck_assert(rubato_engine_set(engine, "t", &key, 1, &value, NULL));
        }
        const double sums[] = {
            call_handler_f64(engine, &(RubatoHandlerCall){ .table = "t", .handler = "sum" }),
            call_handler_f64(engine, &(RubatoHandlerCall){ .table = "t", .handler = "norm" }),
            call_handler_f64(engine, &(RubatoHandlerCall){ .table = "t",
                                                           .handler = "dot",
                                                           .arguments = "t",
                                                           .n_argument_bytes = 1 }),
        };
        ck_assert(i == 0 || memcmp(seen, sums, sizeof seen) == 0);
        memcpy(seen, sums, sizeof seen);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("built-in handlers");
    TCase *const cases = tcase_create("handlers");

    tcase_add_loop_test(cases, a_built_in_handler_gives_what_a_loop_gives, 0,
                        (int)(G_N_ELEMENTS(dtypes) * 2 * G_N_ELEMENTS(servers)));
    tcase_add_test(cases, sums_do_not_depend_on_servers_or_parts);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
