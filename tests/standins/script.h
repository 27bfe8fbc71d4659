/* What the stand-in libraries share: a script beside the library says how it behaves.
 *
 * The script of /tmp/x/libcuda.so.1 is /tmp/x/libcuda.so.1.script. It is read once a process, at
 * the first call. One `key value...` a line; `#` starts a comment. These keys work in every library:
 *
 *   fail FUNCTION CODE [AFTER [TIMES]]
 *                                return CODE once FUNCTION was called AFTER times (default 0), and
 *                                only TIMES times
 *   hang FUNCTION [AFTER]        never return; signals with default actions still end the process
 *   stall FUNCTION PATH [AFTER]  open PATH and read a byte before anything else: where it lies in a
 *                                file system that does not answer, no signal ends the process, and
 *                                the first one shows it in state D; once the file answers, or
 *                                fails, the call goes on
 *   delay FUNCTION MS [AFTER [TIMES]]
 *                                sleep that long before anything else
 *   crash FUNCTION [AFTER]       abort()
 *   segfault FUNCTION [AFTER]    write where nothing is, as a broken driver does
 *   log PATH [FUNCTION]          append the name of every function called, one a line; of that one
 *                                alone where one is named
 *
 * Anything else is the library's own. A key, function or number that means nothing ends the process
 * with a message, so that a mistyped test cannot pass.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Handle one line that is not common to all libraries; false where the key is unknown. */
typedef bool script_handler(const char *key, char *value);

/* One per exported function, static in it: how often it was called and what the script says. */
struct script_call {
    bool resolved;
    long calls;
    const struct script_rule *fail, *hang, *stall, *crash, *segfault, *delay;
};

/* Read the script now, if that has not happened. */
void script_load(void);

/* Each library defines these two. */
script_handler library_line;
extern const char *const library_name;

/* Count one call of `function` and do what the script says; the code to fail with, or 0. */
int script_enter(struct script_call *call, const char *function);

/* Parse a whole value or end the process. Real numbers may be written 1e13,
 * and an unsigned one -1 for the highest there is. */
int64_t script_integer(const char *key, const char *text);
uint64_t script_unsigned(const char *key, const char *text);
double script_real(const char *key, const char *text);

/* Copy text that must fit; the process ends where it does not. */
void script_text(const char *key, const char *text, char *buffer, int size);

/* Make sure that this library exports a function, else its rule would silently never apply. */
void script_function(const char *key, const char *name);

/* Take `device.INDEX.FIELD` apart: true, with both parts, where `key` has that form. */
bool script_device_key(const char *key, int limit, int *index, const char **field);

/* Say what is wrong on standard error and abort. */
_Noreturn void script_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The call is over: where the clock is virtual, what it has cost its caller's language is added. */
void script_leave(struct script_call **call);

/* virtual_clock.c, where it is loaded before this library. */
__attribute__((weak)) int64_t virtual_clock_now(void);
__attribute__((weak)) void virtual_clock_to(int64_t ns);
__attribute__((weak)) void virtual_clock_call(void);

/* Monotonic nanoseconds, and a busy wait that ends `ns` after `since`; virtual ones where so. */
int64_t now_ns(void);
void spin(int64_t since, int64_t ns);

#endif
