/* Progress of a training run: on a terminal a bar that is drawn in place, elsewhere a line from
 * time to time. It goes to standard error.
 *
 * Threads: app_progress_count from any worker; app_progress_draw from one; begin and end while no
 * worker runs. */
#ifndef RUBATO_APPS_KIT_REPORT_APP_PROGRESS_H
#define RUBATO_APPS_KIT_REPORT_APP_PROGRESS_H

#include <glib.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    /* immutable during a run */
    int fd;
    bool bar;               /* a terminal that can draw in place */
    unsigned piped_columns; /* `rubato run` draws the bar, of so many columns; 0: it does not */
    uint32_t n_epochs;
    uint64_t n_total; /* samples of all epochs, over all workers */

    /* any worker */
    _Atomic uint64_t n_counted; /* samples, on this node */

    /* the drawing worker only */
    bool reports;
    double scale; /* all workers for each one of this node */
    int64_t begun_us, drawn_us;
    uint32_t line_epoch;     /* the epoch whose line comes next */
    double loss_sum, loss_n; /* of the last rows: older ones weigh less */
} AppProgress;

/* What one line or bar shows. */
typedef struct {
    uint32_t epoch, n_epochs; /* epoch from 1 */
    double done;              /* 0 .. 1, of the run */
    double samples_per_second;
    double loss; /* NaN: not known yet */
} AppProgressView;

/* Before the workers start. n_total is the samples of all epochs, over all workers. */
void app_progress_begin(AppProgress *progress, uint32_t n_epochs, uint64_t n_total);

/* From the worker that is to draw, before its first step. */
void app_progress_report(AppProgress *progress, uint32_t n_workers, uint32_t n_local_workers);

void app_progress_count(AppProgress *progress, uint64_t n_samples);

/* Draws if it is time; n_samples and their summed loss are the drawing worker's since last time. */
void app_progress_draw(AppProgress *progress, uint64_t n_samples, double loss);

/* Prints a line on standard error that stays; a bar gives way to it. */
void app_progress_say(AppProgress *progress, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Takes the bar off the terminal, or writes a last line. n_samples: over all workers; 0: unknown,
 * so that it is estimated from those that were counted. */
void app_progress_end(AppProgress *progress, uint64_t n_samples);

/* The text of a bar of at most `columns` columns, or of a line. */
void app_progress_format_bar(const AppProgressView *view, unsigned columns, char *text,
                             size_t size);
void app_progress_format_line(const AppProgressView *view, char *text, size_t size);

/* A number with commas between its thousands: 60,000. */
void app_format_count(uint64_t n, char *text, size_t size);

#endif
