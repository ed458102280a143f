/* Signals as messages: a thread reads a signalfd. So no code runs in a signal handler, and no state
 * is global. */
#include "engine/signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "io/net/log_sink.h"

struct SignalWatch {
    /* immutable */
    bool (*interrupted)(RubatoEngine *engine, int signal_number);
    RubatoEngine *engine;
    sigset_t before;
    int signals;
    int stop;
    pthread_t thread;
};

static void *watch_signals(void *user)
{
    SignalWatch *watch = user;
    struct pollfd fds[] = { { .fd = watch->signals, .events = POLLIN },
                            { .fd = watch->stop, .events = POLLIN } };
    struct signalfd_siginfo info;
    bool is_cancelled = false;

    for (;;) {
        if (poll(fds, G_N_ELEMENTS(fds), -1) < 0)
            continue;
        if (fds[1].revents != 0)
            return NULL;
        if (read(watch->signals, &info, sizeof info) != (ssize_t)sizeof info)
            continue;
        if (is_cancelled)
            _exit(128 + (int)info.ssi_signo);
        is_cancelled = watch->interrupted(watch->engine, (int)info.ssi_signo);
    }
}

static sigset_t watched_signals(void)
{
    struct sigaction hangup;
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    /* A SIGHUP that is ignored, as under nohup, stays ignored. */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(&signals, SIGHUP);
    return signals;
}

void signals_block(sigset_t *before)
{
    const sigset_t signals = watched_signals();

    pthread_sigmask(SIG_BLOCK, &signals, before);
}

SignalWatch *signal_watch_new(bool (*interrupted)(RubatoEngine *engine, int signal_number),
                              RubatoEngine *engine)
{
    SignalWatch *watch = g_new0(SignalWatch, 1);
    const sigset_t signals = watched_signals();

    watch->interrupted = interrupted;
    watch->engine = engine;
    signals_block(&watch->before);
    watch->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    watch->stop = eventfd(0, EFD_CLOEXEC);
    if (watch->signals >= 0 && watch->stop >= 0 &&
        log_sink_start_thread(&watch->thread, watch_signals, watch) == 0) {
        pthread_setname_np(watch->thread, "signals");
        return watch;
    }
    pthread_sigmask(SIG_SETMASK, &watch->before, NULL);
    if (watch->signals >= 0)
        close(watch->signals);
    if (watch->stop >= 0)
        close(watch->stop);
    g_free(watch);
    return NULL;
}

void signal_watch_free(SignalWatch *watch)
{
    const uint64_t one = 1;

    if (watch == NULL)
        return;
    if (write(watch->stop, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(watch->thread, NULL);
    close(watch->signals);
    close(watch->stop);
    pthread_sigmask(SIG_SETMASK, &watch->before, NULL);
    g_free(watch);
}
