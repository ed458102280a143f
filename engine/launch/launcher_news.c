/* See launcher_news.h. The sequence is an application program command of ECMA-48: ESC _ … ESC \. */
#include "engine/launch/launcher_news.h"

#include <string.h>
#include <unistd.h>

#define BEGIN "\033_rubato "
#define END "\033\\"
#define LOST "lost "
#define ENDED "ended"

static void tell(const char *text)
{
    /* In one piece: a pipe takes so few bytes at once. If nobody reads it, nobody waits for it. */
    if (g_getenv(LAUNCHER_NEWS_VARIABLE) != NULL)
        (void)!write(STDERR_FILENO, text, strlen(text));
}

void launcher_news_tell_lost(uint32_t id, uint64_t incarnation)
{
    g_autofree char *text =
        g_strdup_printf(BEGIN LOST "%u %" G_GUINT64_FORMAT END "\n", id, incarnation);

    tell(text);
}

void launcher_news_tell_end(void)
{
    tell(BEGIN ENDED END "\n");
}

static bool read_news(const char *text, LauncherNews *news)
{
    guint64 id, incarnation;

    if (strcmp(text, ENDED) == 0) {
        *news = (LauncherNews){ .has_ended = true };
        return true;
    }
    if (!g_str_has_prefix(text, LOST))
        return false;
    g_auto(GStrv) numbers = g_strsplit(text + strlen(LOST), " ", -1);
    if (g_strv_length(numbers) != 2 ||
        !g_ascii_string_to_unsigned(numbers[0], 10, 0, UINT32_MAX, &id, NULL) ||
        !g_ascii_string_to_unsigned(numbers[1], 10, 0, UINT64_MAX, &incarnation, NULL))
        return false;
    *news = (LauncherNews){ .id = (uint32_t)id, .incarnation = incarnation };
    return true;
}

bool launcher_news_take(GString *line, LauncherNews *news)
{
    const char *const begin = strstr(line->str, BEGIN);
    const char *const end = begin == NULL ? NULL : strstr(begin, END);

    if (end == NULL)
        return false;
    g_autofree char *text = g_strndup(begin + strlen(BEGIN), (gsize)(end - begin) - strlen(BEGIN));
    if (!read_news(text, news))
        return false;
    g_string_erase(line, begin - line->str, end - begin + (gssize)strlen(END));
    return true;
}
