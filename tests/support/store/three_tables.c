#include "tests/support/store/three_tables.h"

#include <string.h>

enum { N_RANGE = 900, FIRST = 50, N_ANY = 700, N_LISTS = 300, WIDTH = 3 };

/* Room for state of any rule. */
enum { MOST_STATE = 2 + 2 * WIDTH };

#define CHECK(condition, ...)                                                    \
    do                                                                           \
        if (!(condition)) {                                                      \
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, __VA_ARGS__); \
            return false;                                                        \
        }                                                                        \
    while (0)

static RubatoKey any_key(uint64_t i)
{
    return (i * 7919) % 100003; /* so that a range can have them, too */
}

static float value_of(RubatoKey key, size_t column)
{
    return (float)(key % 1000) + (float)column / 4;
}

static float state_of(RubatoKey key, size_t column)
{
    return 1 + (float)(key % 512) / 8 + (float)column / 2;
}

static uint32_t length_of(RubatoKey key)
{
    return (uint32_t)(key * key % 11);
}

bool three_tables_create(RubatoEngine *engine, const ThreeShapes *shapes, GError **error)
{
    const RubatoDtype dtype = shapes->is_double ? RUBATO_F64 : RUBATO_F32;
    RubatoTableSpec range = { .name = "range",
                              .dtype = dtype,
                              .width = WIDTH,
                              .update = "adagrad",
                              .rule = { .learning_rate = 1 },
                              .parts = shapes->parts };
    RubatoTableSpec any = { .name = "any",
                            .dtype = dtype,
                            .width = WIDTH,
                            .update = "adam",
                            .rule = { .learning_rate = 1 },
                            .parts = shapes->parts };
    const RubatoTableSpec lists = {
        .name = "lists", .dtype = RUBATO_I32, .shape = RUBATO_SHAPE_RAGGED, .parts = shapes->parts
    };

    if (shapes->swaps_storages) {
        any.n_keys = 100003;
    } else {
        range.n_keys = N_RANGE;
        range.first_key = FIRST;
    }
    return rubato_engine_create_table(engine, &any, error) &&
           rubato_engine_create_table(engine, &lists, error) &&
           rubato_engine_create_table(engine, &range, error);
}

/* ---- filling ---- */

static bool fill_even(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                      uint32_t state_width, GError **error)
{
    g_autofree float *values = g_new(float, n *WIDTH);
    g_autofree float *states = g_new(float, n *state_width);

    for (size_t i = 0; i < n * WIDTH; i++)
        values[i] = value_of(keys[i / WIDTH], i % WIDTH);
    for (size_t i = 0; i < n * state_width; i++)
        states[i] = state_of(keys[i / state_width], i % state_width);
    return rubato_engine_set(engine, table, keys, n, values, error) &&
           rubato_engine_set_state(engine, table, keys, n, states, error);
}

static bool fill_lists(RubatoEngine *engine, GError **error)
{
    RubatoKey keys[N_LISTS];
    uint32_t lengths[N_LISTS];
    int32_t values[N_LISTS * 11];
    size_t n = 0;

    for (size_t i = 0; i < N_LISTS; i++) {
        keys[i] = any_key(i);
        lengths[i] = length_of(keys[i]);
        for (uint32_t at = 0; at < lengths[i]; at++)
            values[n++] = (int32_t)(keys[i] * 16 + at);
    }
    return rubato_engine_assign_ragged(engine, "lists", keys, N_LISTS, lengths, values, error);
}

static void list_keys(RubatoKey *range, RubatoKey *any)
{
    for (size_t i = 0; i < N_RANGE; i++)
        range[i] = FIRST + i;
    for (size_t i = 0; i < N_ANY; i++)
        any[i] = any_key(i);
}

bool three_tables_fill(RubatoEngine *engine, GError **error)
{
    RubatoKey range[N_RANGE], any[N_ANY];

    list_keys(range, any);
    return fill_even(engine, "range", range, N_RANGE, WIDTH, error) &&
           fill_even(engine, "any", any, N_ANY, 2 + 2 * WIDTH, error) &&
           fill_lists(engine, error) &&
           rubato_engine_tune(engine, "range", RUBATO_HYPER_LEARNING_RATE, THREE_RATE, error);
}

/* ---- checking ---- */

/* Number i of an array of f32 or f64. */
static double number_at(const void *numbers, size_t i, bool is_double)
{
    return is_double ? ((const double *)numbers)[i] : (double)((const float *)numbers)[i];
}

static bool check_even(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                       uint32_t state_width, bool is_double, GError **error)
{
    g_autofree double *values = g_new(double, n *WIDTH);
    g_autofree double *states = g_new(double, n *state_width);

    if (!rubato_engine_get(engine, table, keys, n, values, error) ||
        !rubato_engine_get_state(engine, table, keys, n, states, error))
        return false;
    for (size_t i = 0; i < n * WIDTH; i++)
        CHECK(number_at(values, i, is_double) == (double)value_of(keys[i / WIDTH], i % WIDTH),
              "table %s: value %zu of key %" G_GUINT64_FORMAT " is %g", table, i % WIDTH,
              keys[i / WIDTH], number_at(values, i, is_double));
    for (size_t i = 0; i < n * state_width; i++)
        CHECK(number_at(states, i, is_double) ==
                  (double)state_of(keys[i / state_width], i % state_width),
              "table %s: state %zu of key %" G_GUINT64_FORMAT " is %g", table, i % state_width,
              keys[i / state_width], number_at(states, i, is_double));
    return true;
}

static bool check_lists(RubatoEngine *engine, GError **error)
{
    RubatoKey keys[N_LISTS];
    uint32_t lengths[N_LISTS];
    g_autofree void *values = NULL;
    size_t n = 0;

    for (size_t i = 0; i < N_LISTS; i++)
        keys[i] = any_key(i);
    if (!rubato_engine_get_ragged(engine, "lists", keys, N_LISTS, lengths, &values, error))
        return false;
    for (size_t i = 0; i < N_LISTS; i++) {
        CHECK(lengths[i] == length_of(keys[i]), "row %zu of lists has %u values", i, lengths[i]);
        for (uint32_t at = 0; at < lengths[i]; at++, n++)
            CHECK(((const int32_t *)values)[n] == (int32_t)(keys[i] * 16 + at),
                  "value %u of row %zu of lists is another one", at, i);
    }
    return true;
}

static bool check_count(RubatoEngine *engine, const char *table, size_t n, GError **error)
{
    g_autofree RubatoKey *keys = NULL;
    size_t n_keys;

    if (!rubato_engine_list_keys(engine, table, &keys, &n_keys, error))
        return false;
    CHECK(n_keys == n, "table %s has %zu rows", table, n_keys);
    return true;
}

/* A step of adagrad along a gradient of 1: value -= rate / (√(state + 1) + epsilon). */
static bool check_rate(RubatoEngine *engine, bool is_double, GError **error)
{
    const RubatoKey key = FIRST + 3;
    const float ones[WIDTH] = { 1, 1, 1 };
    const double doubles[WIDTH] = { 1, 1, 1 };
    double values[WIDTH];

    if (!rubato_engine_add(engine, "range", &key, 1,
                           is_double ? (const void *)doubles : (const void *)ones, error) ||
        !rubato_engine_get(engine, "range", &key, 1, values, error))
        return false;
    const double root = __builtin_sqrt((double)state_of(key, 0) + 1);
    const double step = (double)value_of(key, 0) - number_at(values, 0, is_double);
    CHECK(step > 0.99 * THREE_RATE / root && step < 1.01 * THREE_RATE / root,
          "a step of %g is not one of the rate %g", step, THREE_RATE);
    return true;
}

bool three_tables_check(RubatoEngine *engine, const ThreeShapes *shapes, GError **error)
{
    RubatoKey range[N_RANGE], any[N_ANY];

    list_keys(range, any);
    return check_even(engine, "range", range, N_RANGE, WIDTH, shapes->is_double, error) &&
           check_even(engine, "any", any, N_ANY, 2 + 2 * WIDTH, shapes->is_double, error) &&
           check_lists(engine, error) && check_count(engine, "range", N_RANGE, error) &&
           check_count(engine, "any", shapes->swaps_storages ? 100003 : N_ANY, error) &&
           check_count(engine, "lists", N_LISTS, error) &&
           check_rate(engine, shapes->is_double, error);
}
