/* The rule "add": value += delta. Integers wrap.
 *
 * One set of loops for each type of element; integers are added as unsigned ones, where wrapping is
 * defined. Rows of a single value that are listed are stored atomically, because other threads may
 * read them meanwhile (stores_whole).
 *
 * Thread: the shard's present owner. */
#include <rubato/update_ops.h>
#include <rubato/vector_clones.h>

#define DEFINE_LOOPS(name, type)                                                             \
    static inline __attribute__((always_inline)) void add_one_##name(type *row, type delta)  \
    {                                                                                        \
        type value = *row + delta;                                                           \
                                                                                             \
        /* relaxed: what orders Adds and Gets orders this; a builtin, for rows are plain */  \
        __atomic_store(row, &value, __ATOMIC_RELAXED);                                       \
    }                                                                                        \
                                                                                             \
    static inline __attribute__((always_inline)) void add_loop_##name(                       \
        type *restrict values, const type *restrict deltas, size_t n)                        \
    {                                                                                        \
        for (size_t i = 0; i < n; i++)                                                       \
            values[i] += deltas[i];                                                          \
    }                                                                                        \
                                                                                             \
    RUBATO_VECTOR_CLONES static void add_##name(type *values, const type *deltas, size_t n)  \
    {                                                                                        \
        add_loop_##name(values, deltas, n);                                                  \
    }                                                                                        \
                                                                                             \
    RUBATO_VECTOR_CLONES static void add_rows_##name(                                        \
        uint32_t width, void *const *rows, const type *deltas, const uint32_t *at, size_t n) \
    {                                                                                        \
        if (width == 1 && at == NULL)                                                        \
            for (size_t i = 0; i < n; i++)                                                   \
                add_one_##name(rows[i], deltas[i]);                                          \
        else if (width == 1)                                                                 \
            for (size_t i = 0; i < n; i++)                                                   \
                add_one_##name(rows[i], deltas[at[i]]);                                      \
        else                                                                                 \
            for (size_t i = 0; i < n; i++)                                                   \
                add_loop_##name(rows[i], deltas + (at == NULL ? i : at[i]) * width, width);  \
    }

DEFINE_LOOPS(f32, float)
DEFINE_LOOPS(f64, double)
DEFINE_LOOPS(u32, uint32_t)
DEFINE_LOOPS(u64, uint64_t)

static void apply(const RubatoUpdate *update, void *values, const void *deltas, size_t n_values)
{
    switch (update->dtype) {
    case RUBATO_F32:
        add_f32(values, deltas, n_values);
        break;
    case RUBATO_F64:
        add_f64(values, deltas, n_values);
        break;
    case RUBATO_I32:
        add_u32(values, deltas, n_values);
        break;
    case RUBATO_I64:
        add_u64(values, deltas, n_values);
        break;
    case RUBATO_U8:  /* in ragged rows alone */
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
}

static void apply_rows(const RubatoUpdate *update, void *const *rows, const void *deltas,
                       const uint32_t *at, size_t n)
{
    const uint32_t width = update->width;

    switch (update->dtype) {
    case RUBATO_F32:
        add_rows_f32(width, rows, deltas, at, n);
        break;
    case RUBATO_F64:
        add_rows_f64(width, rows, deltas, at, n);
        break;
    case RUBATO_I32:
        add_rows_u32(width, rows, deltas, at, n);
        break;
    case RUBATO_I64:
        add_rows_u64(width, rows, deltas, at, n);
        break;
    case RUBATO_U8:  /* in ragged rows alone */
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
}

const RubatoUpdateOps add_update_ops = {
    .name = "add",
    .traits = { .replayable = true, .stores_whole = true },
    .apply = apply,
    .apply_rows = apply_rows,
};
