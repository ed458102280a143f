/* A node that plays the conformance suite of collectives (tensor_suite.h) with those that start
 * with it, whatever starts them: test_mpi_collectives.sh. Its arguments are those of any program.
 * Prints one line; exits with 1 and the error if something was wrong.
 *
 *     collectives_node [--workers N] [PART...] */
#include <string.h>

#include "tests/support/engine/tensor_suite.h"

static const struct {
    const char *name;
    TensorSuitePart play;
} parts[] = {
    { "operations", tensor_suite_operations },
    { "sets", tensor_suite_sets },
    { "much", tensor_suite_much },
    { "sums", tensor_suite_sums },
    { "numbers", tensor_suite_numbers },
    { "compression", tensor_suite_compression },
    { "repeats", tensor_suite_repeats },
};

static bool play(RubatoEngine *engine, char *const *chosen, GError **error)
{
    for (size_t i = 0; i < G_N_ELEMENTS(parts); i++)
        if ((*chosen == NULL || g_strv_contains((const char *const *)chosen, parts[i].name)) &&
            !parts[i].play(engine, rubato_engine_n_workers(engine), error)) {
            g_prefix_error(error, "%s: ", parts[i].name);
            return false;
        }
    return true;
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine = rubato_engine_new_from_args(&argc, &argv, &error);

    if (engine == NULL || !play(engine, argv + 1, &error)) {
        g_printerr("collectives_node: %s\n", error->message);
        return 1;
    }
    g_print("collectives are right\n");
    return 0;
}
