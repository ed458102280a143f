/* Draws how far a training run has come.
 *
 * Every worker of the node counts its samples; one of them, the run's worker 0, looks at the time
 * after each of its steps and draws, so that no thread is needed for it. It estimates the figures
 * of the whole run from its node's count. Each picture is one write. */
#include "apps/kit/report/app_progress.h"

#include <glib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_INTERVAL_US (G_USEC_PER_SEC / 10)
#define LINE_INTERVAL_US (5 * G_USEC_PER_SEC)
#define COLUMNS_DEFAULT 80u
#define COLUMNS_MAX 240u
#define BAR_WIDTH_MAX 40u
#define LOSS_MEMORY 0.98
#define EPOCH_ROUNDING 0.01 /* what is known of other nodes is an estimate */
#define TEXT_MAX 512
#define ERASE_TO_END "\033[K"

void app_format_count(uint64_t n, char *text, size_t size)
{
    char digits[24];
    const int length = g_snprintf(digits, sizeof digits, "%" G_GUINT64_FORMAT, n);
    size_t used = 0;

    for (int i = 0; i < length && used + 2 < size; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
}

static void format_numbers(const AppProgressView *view, char *text, size_t size)
{
    char speed[32], loss[32] = "";

    app_format_count((uint64_t)view->samples_per_second, speed, sizeof speed);
    if (isfinite(view->loss))
        g_snprintf(loss, sizeof loss, "  loss %.4f", view->loss);
    g_snprintf(text, size, "%3.0f %%  %s samples/s%s", floor(view->done * 100), speed, loss);
}

void app_progress_format_bar(const AppProgressView *view, unsigned columns, char *text, size_t size)
{
    char numbers[128], epoch[48], bar[BAR_WIDTH_MAX + 4] = "";
    size_t n;

    format_numbers(view, numbers, sizeof numbers);
    g_snprintf(epoch, sizeof epoch, "epoch %u/%u ", view->epoch, view->n_epochs);

    /* A bar, if there is room for brackets, a blank and at least eight columns of it. */
    const size_t used = strlen(numbers) + strlen(epoch);
    if (used + 11 <= columns) {
        const size_t width = MIN(columns - used - 3, BAR_WIDTH_MAX);
        const size_t full = (size_t)(CLAMP(view->done, 0, 1) * (double)width);

        bar[0] = '[';
        memset(bar + 1, '=', full);
        memset(bar + 1 + full, ' ', width - full);
        if (full > 0 && full < width)
            bar[full] = '>';
        memcpy(bar + 1 + width, "] ", 3);
    }
    g_snprintf(text, size, "%s%s%s", epoch, bar, numbers);
    n = MIN((size_t)columns, size - 1);
    if (strlen(text) > n)
        text[n] = '\0';
}

void app_progress_format_line(const AppProgressView *view, char *text, size_t size)
{
    char numbers[128];

    format_numbers(view, numbers, sizeof numbers);
    g_snprintf(text, size, "epoch %u/%u  %s", view->epoch, view->n_epochs, g_strchug(numbers));
}

static bool can_draw_in_place(int fd)
{
    const char *term = getenv("TERM");

    return isatty(fd) && term != NULL && *term != '\0' && strcmp(term, "dumb") != 0;
}

/* Of the terminal to which `rubato run` passes a line that begins with a carriage return; 0: there
 * is none. */
static unsigned find_piped_columns(int fd)
{
    const char *text = getenv("RUBATO_BAR_COLUMNS");
    guint64 columns = 0;

    if (isatty(fd) || text == NULL ||
        !g_ascii_string_to_unsigned(text, 10, 1, G_MAXUINT, &columns, NULL))
        return 0;
    return (unsigned)MIN(columns, COLUMNS_MAX);
}

/* One less than the terminal has, because some terminals wrap in the last column. */
static unsigned terminal_columns(int fd)
{
    struct winsize size;

    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return COLUMNS_DEFAULT - 1;
    return MIN(size.ws_col, COLUMNS_MAX) - 1;
}

static void write_text(const AppProgress *progress, const char *text)
{
    /* If progress cannot be shown, training goes on. */
    if (write(progress->fd, text, strlen(text)) < 0)
        return;
}

void app_progress_begin(AppProgress *progress, uint32_t n_epochs, uint64_t n_total)
{
    progress->fd = STDERR_FILENO;
    progress->piped_columns = find_piped_columns(progress->fd);
    progress->bar = progress->piped_columns > 0 || can_draw_in_place(progress->fd);
    progress->n_epochs = n_epochs;
    progress->n_total = MAX(n_total, 1);
    atomic_store_explicit(&progress->n_counted, 0, memory_order_relaxed);
    progress->reports = false;
    progress->scale = 1;
    progress->begun_us = progress->drawn_us = g_get_monotonic_time();
    progress->line_epoch = 1;
    progress->loss_sum = progress->loss_n = 0;
}

void app_progress_report(AppProgress *progress, uint32_t n_workers, uint32_t n_local_workers)
{
    if (progress->reports)
        return; /* a further task of the same run */
    progress->reports = true;
    progress->scale = (double)n_workers / (double)MAX(n_local_workers, 1);
    progress->begun_us = progress->drawn_us = g_get_monotonic_time();
}

void app_progress_count(AppProgress *progress, uint64_t n_samples)
{
    /* relaxed: only a count; it orders no other memory */
    atomic_fetch_add_explicit(&progress->n_counted, n_samples, memory_order_relaxed);
}

static double estimate(const AppProgress *progress)
{
    return (double)atomic_load_explicit(&progress->n_counted, memory_order_relaxed) *
           progress->scale;
}

/* When so many samples are done, over all workers. */
static AppProgressView look(const AppProgress *progress, double counted, int64_t now_us)
{
    const double seconds = (double)MAX(now_us - progress->begun_us, 1) / G_USEC_PER_SEC;
    const double done = MIN(counted / (double)progress->n_total, 1);

    return (AppProgressView){
        .epoch = MIN((uint32_t)(done * progress->n_epochs) + 1, progress->n_epochs),
        .n_epochs = progress->n_epochs,
        .done = done,
        .samples_per_second = counted / seconds,
        .loss = progress->loss_n > 0 ? progress->loss_sum / progress->loss_n : (double)NAN,
    };
}

static void draw(AppProgress *progress, const AppProgressView *view, int64_t now_us)
{
    char text[TEXT_MAX], picture[TEXT_MAX + 16];

    if (progress->piped_columns > 0) {
        app_progress_format_bar(view, progress->piped_columns, text, sizeof text);
        g_snprintf(picture, sizeof picture, "\r%s\n", text);
    } else if (progress->bar) {
        app_progress_format_bar(view, terminal_columns(progress->fd), text, sizeof text);
        g_snprintf(picture, sizeof picture, "\r%s" ERASE_TO_END, text);
    } else {
        app_progress_format_line(view, text, sizeof text);
        g_snprintf(picture, sizeof picture, "%s\n", text);
    }
    write_text(progress, picture);
    progress->drawn_us = now_us;
}

void app_progress_draw(AppProgress *progress, uint64_t n_samples, double loss)
{
    const int64_t now_us = g_get_monotonic_time();
    const int64_t interval_us = progress->bar ? BAR_INTERVAL_US : LINE_INTERVAL_US;

    progress->loss_sum = progress->loss_sum * LOSS_MEMORY + loss;
    progress->loss_n = progress->loss_n * LOSS_MEMORY + (double)n_samples;

    AppProgressView view = look(progress, estimate(progress), now_us);
    if (!progress->bar && view.epoch != progress->line_epoch) {
        /* A line for the epoch that has just ended. */
        const uint32_t begun = view.epoch;

        view.epoch--;
        draw(progress, &view, now_us);
        progress->line_epoch = begun;
    } else if (now_us - progress->drawn_us >= interval_us) {
        draw(progress, &view, now_us);
    }
}

void app_progress_say(AppProgress *progress, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    if (progress->bar && progress->piped_columns == 0)
        write_text(progress, "\r" ERASE_TO_END);
    write_text(progress, text);
}

void app_progress_end(AppProgress *progress, uint64_t n_samples)
{
    const int64_t now_us = g_get_monotonic_time();

    if (!progress->reports)
        return;
    if (progress->bar) {
        write_text(progress, progress->piped_columns > 0 ? "\r\n" : "\r" ERASE_TO_END);
    } else {
        AppProgressView view =
            look(progress, n_samples > 0 ? (double)n_samples : estimate(progress), now_us);

        /* the epoch in which it ended, not the one that would come next */
        const double last = ceil(view.done * progress->n_epochs - EPOCH_ROUNDING);
        view.epoch = (uint32_t)MAX(last, 1);
        draw(progress, &view, now_us);
    }
}
