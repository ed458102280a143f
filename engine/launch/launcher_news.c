/* See launcher_news.h. The sequence is an application program command of ECMA-48: ESC _ … ESC \. */
#include "engine/launch/launcher_news.h"

#include <string.h>
#include <unistd.h>

#define BEGIN "\033_rubato lost "
#define END "\033\\"

void launcher_news_tell_lost(uint32_t id, uint64_t incarnation)
{
    g_autofree char *text = NULL;

    if (g_getenv(LAUNCHER_NEWS_VARIABLE) == NULL)
        return;
    text = g_strdup_printf(BEGIN "%u %" G_GUINT64_FORMAT END "\n", id, incarnation);
    /* In one piece: a pipe takes so few bytes at once. If nobody reads it, nobody waits for it. */
    (void)!write(STDERR_FILENO, text, strlen(text));
}

bool launcher_news_take_lost(GString *line, LostNews *news)
{
    const char *const begin = strstr(line->str, BEGIN);
    const char *const end = begin == NULL ? NULL : strstr(begin, END);
    guint64 id, incarnation;

    if (end == NULL)
        return false;
    g_autofree char *text = g_strndup(begin + strlen(BEGIN), (gsize)(end - begin) - strlen(BEGIN));
    g_auto(GStrv) numbers = g_strsplit(text, " ", -1);
    if (g_strv_length(numbers) != 2 ||
        !g_ascii_string_to_unsigned(numbers[0], 10, 0, UINT32_MAX, &id, NULL) ||
        !g_ascii_string_to_unsigned(numbers[1], 10, 0, UINT64_MAX, &incarnation, NULL))
        return false;
    *news = (LostNews){ (uint32_t)id, incarnation };
    g_string_erase(line, begin - line->str, end - begin + (gssize)strlen(END));
    return true;
}
