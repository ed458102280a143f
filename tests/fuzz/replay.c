/* Replaces libFuzzer if a fuzz target is built without it: gives the target an empty input and then
 * each file named on the command line, or every file of a folder. So inputs that the fuzzer once
 * found are tested again under any compiler and sanitizer. */
#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t n_inputs;

static bool replay_file(const char *path)
{
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;
    gsize size = 0;

    if (!g_file_get_contents(path, &text, &size, &error)) {
        g_printerr("%s\n", error->message);
        return false;
    }
    /* A copy of just its size, so that a sanitizer sees a read past the end. */
    uint8_t *data = malloc(size > 0 ? size : 1);
    if (data == NULL)
        return false;
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)text[i];
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_inputs++;
    return true;
}

static bool replay(const char *path)
{
    const char *name;
    bool good = true;

    if (!g_file_test(path, G_FILE_TEST_IS_DIR))
        return replay_file(path);

    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *file = g_build_filename(path, name, NULL);
        good = replay(file) && good;
    }
    return dir != NULL && good;
}

int main(int argc, char **argv)
{
    const uint8_t nothing = 0;
    bool good = true;

    LLVMFuzzerTestOneInput(&nothing, 0);
    for (int i = 1; i < argc; i++)
        good = replay(argv[i]) && good;
    g_print("%" G_GSIZE_FORMAT " inputs replayed\n", n_inputs);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
