/* Flags that have no effect are refused, because their user expects one. Whether a flag was given
 * is read from the command line, since what it sets does not tell it from its default. Runs on
 * main's thread. */
#include "apps/kit/app_effects.h"

#include <string.h>

#include "apps/kit/app.h"

/* Shared flags that say how a model is trained, and their letters. */
static const char *const of_training[] = { "batch-size",
                                           "learning-rate",
                                           "split",
                                           "checkpoint-every",
                                           "checkpoint-packing",
                                           "stream-packing",
                                           "full-every",
                                           "keep",
                                           "straggler",
                                           "time-limit",
                                           "target-loss",
                                           "keep-going",
                                           "plot",
                                           "stream-every",
                                           "stream",
                                           NULL };
static const GOptionEntry letters[] = { { .long_name = "batch-size", .short_name = 'b' },
                                        { .long_name = "learning-rate", .short_name = 'l' },
                                        G_OPTION_ENTRY_NULL };

static bool is_given(char *const *arguments, const char *name, char letter)
{
    const size_t n = strlen(name);

    for (; *arguments != NULL && strcmp(*arguments, "--") != 0; arguments++) {
        const char *text = *arguments;

        if (g_str_has_prefix(text, "--") && strncmp(text + 2, name, n) == 0 &&
            (text[2 + n] == '\0' || text[2 + n] == '='))
            return true;
        if (letter != 0 && text[0] == '-' && text[1] == letter && text[2] == '\0')
            return true;
    }
    return false;
}

static char letter_of(const GOptionEntry *entries, const char *name)
{
    for (; entries != NULL && entries->long_name != NULL; entries++)
        if (strcmp(entries->long_name, name) == 0)
            return entries->short_name;
    return 0;
}

/* Refuses those flags of a list that are given, and says what they need. */
static bool refuse(const char *const *names, const GOptionEntry *entries, char *const *arguments,
                   const char *needs, GError **error)
{
    for (; names != NULL && *names != NULL; names++)
        if (is_given(arguments, *names, letter_of(entries, *names)))
            return app_refuse(error, "--%s: has no effect here; it needs %s", *names, needs);
    return true;
}

bool app_effects_check(const App *app, char *const *arguments, GError **error)
{
    static const char *const train[] = { "train", NULL };
    static const char epochs[] = "training, that is --epochs above 0";
    const AppProgram *program = app->program;

    if (app->epochs > 0)
        return true;
    if (!refuse(of_training, letters, arguments, epochs, error) ||
        !refuse(program->of_training, program->options, arguments, epochs, error))
        return false;
    return !app->only_loads ||
           (refuse(train, NULL, arguments, epochs, error) &&
            refuse(program->of_rows, program->options, arguments, epochs, error));
}
